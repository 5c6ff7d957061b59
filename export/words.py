"""The figures of the gates, in words: for the summary of an export, for ``robal inspect`` and for refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract.manifest import Graph


def described(graph: Graph) -> dict[str, str]:
    """The figures of a graph's gates in words, by what they are about."""
    checks = graph.checks
    rows = {
        "size": f"{graph.size_bytes / 1e6:,.1f} MB, {checks['size_over_unique_parameters']:.3f} x the unique "
        "parameters in fp32",
        "parity": _parity(checks),
        "independence": f"a text's logits change by at most {checks['max_batch_difference']:.1e} beside others",
    }
    if graph.precision == "fp32":
        return rows
    rows["coverage"] = f"{100 * checks['coverage']:.0f} % of {checks['weight_products']} weight products in 8 bits" + (
        f"; in fp32: {', '.join(checks['kept_in_fp32'])}" if checks["kept_in_fp32"] else ""
    )
    rows["accuracy"] = accuracy_in_words(checks.get("accuracy"))
    return rows


def _parity(checks: Mapping[str, Any]) -> str:
    if "max_abs_logit_difference" not in checks:
        return "nothing here to compare with; it was compared with PyTorch at the export"
    text = f"max |logit difference| {checks['max_abs_logit_difference']:.1e} over {checks['cases']} cases"
    if "logit_difference_limit" in checks:
        return f"{text} (limit {checks['logit_difference_limit']:.0e})"
    return f"{text}; {100 * checks['relative_logit_difference']:.1f} % of what texts differ by"


def accuracy_in_words(figures: Mapping[str, Any] | None) -> str:
    """The figures of the accuracy gate as a clause, or that there are none."""
    if figures is None:
        return "unchecked: export with --eval FILE to compare it with fp32 on labelled texts"
    low, high = figures["drop_interval"]
    return (
        f"{figures['metric']} {figures['before']:.4f} in fp32, {figures['after']:.4f} in int8 (drop "
        f"{100 * figures['drop']:.2f} points, 95 % interval {100 * low:.2f} to {100 * high:.2f}); "
        f"{100 * figures['agreement']:.2f} % of {figures['texts']} texts agree; {figures['changed_beside_others']} "
        "change their label beside other texts"
    )
