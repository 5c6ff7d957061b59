"""Is model B really better than model A? Both answer the same rows, and the difference is tested in pairs."""

from __future__ import annotations

from typing import Any

from contract.errors import UsageError
from finetune.evaluate import Scored
from finetune.intervals import figure_of_rows, mcnemar, paired_bootstrap
from finetune.scorer import Scorer

SURE = 0.05
"""p-value from which on a difference counts as chance."""


def compare(first: tuple[Scorer, Scored], second: tuple[Scorer, Scored]) -> dict[str, Any]:
    """Second against first, as plain values.

    Returns:
        ``difference`` of each figure with its 95 % interval and p-value (paired bootstrap), and for one label
        ``mcnemar`` with the rows that only one of the two has right.

    Raises:
        UsageError: the two have different tasks.
    """
    (scorer, scored), (other, also) = first, second
    if scorer.problem_type != other.problem_type:
        raise UsageError(
            f"{scorer.name} is a {scorer.problem_type} model and {other.name} a {other.problem_type} one; "
            "give models of one task."
        )
    figures = [figure_of_rows(part.logits, part.targets, scorer.problem_type) for part in (scored, also)]
    differences = paired_bootstrap(figures[0], figures[1], len(scored.targets))
    answer: dict[str, Any] = {
        "models": [scorer.name, other.name],
        "difference": {
            name: {"value": value, "interval_95": [low, high], "p": p}
            for name, (value, low, high, p) in differences.items()
        },
    }
    if scorer.problem_type == "single_label_classification":
        right = [part.logits.argmax(axis=1) == part.targets for part in (scored, also)]
        only_first, only_second, p = mcnemar(right[0], right[1])
        answer["mcnemar"] = {"only_first": only_first, "only_second": only_second, "p": p}
    return answer


def in_words(comparison: dict[str, Any]) -> list[str]:
    """The comparison as lines for people."""
    first, second = comparison["models"]
    lines = []
    for name, part in comparison["difference"].items():
        low, high = part["interval_95"]
        lines.append(
            f"{second} - {first}: {name} {part['value']:+.4f} ({low:+.4f} to {high:+.4f}), p = {part['p']:.3g}"
        )
    if "mcnemar" in comparison:
        test = comparison["mcnemar"]
        sure = "a real difference" if test["p"] < SURE else "no difference that these rows can show"
        lines.append(
            f"only {first} right: {test['only_first']} rows, only {second} right: {test['only_second']} rows; "
            f"McNemar p = {test['p']:.3g}: {sure}"
        )
    return lines
