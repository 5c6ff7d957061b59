"""Two reports of different days or versions side by side: what changed, and whether it is more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import DataError, UsageError
from loadtests.estimates import Estimate
from loadtests.markdown import markdown_table, plain
from loadtests.report import SCHEMA
from loadtests.tables import number
from loadtests.verdict import judge

TIMES = (("p50_ms", "p50"), ("p95_ms", "p95"), ("p99_ms", "p99"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One figure of one service, then and now."""

    service: str
    load: str
    figure: str
    before: float
    after: float
    ratio: Estimate
    verdict: str


def read_report(path: Path) -> dict[str, Any]:
    """Read a ``report.json``.

    Raises:
        DataError: it cannot be read, or is none.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise DataError(f"{path} is not JSON; a report.json of `robal loadtest` was expected.") from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        found = report.get("schema") if isinstance(report, dict) else type(report).__name__
        raise DataError(f"{path} is no report of this version (schema {found!r}); {SCHEMA!r} was expected.")
    return report


def changes(before: Mapping[str, Any], after: Mapping[str, Any], *, margin: float) -> list[Change]:
    """Figures that both reports have, for services and loads of the same name.

    Raises:
        UsageError: they have none in common, or one of them is not valid.
    """
    for name, report in (("first", before), ("second", after)):
        if not report["verdict"]["valid"]:
            raise UsageError(f"the {name} report is not valid: {'; '.join(report['verdict']['reasons'])}.")
    old, new = _measured(before), _measured(after)
    found = []
    for service, load in sorted(old.keys() & new.keys()):
        pair = old[service, load], new[service, load]
        for figure, key in TIMES:
            a, b = (_estimate(measured["latency_ms"][key]) for measured in pair)
            found.append(_change(service, load, figure, a, b, margin, higher_is_better=False))
        a, b = (_estimate(measured["requests_per_s"]) for measured in pair)
        found.append(_change(service, load, "requests_per_s", a, b, margin, higher_is_better=True))
    if not found:
        raise UsageError(
            f"the reports have no service and load in common: {_names(old)} in the first, {_names(new)} in the second."
        )
    return found


def render_changes(found: Sequence[Change]) -> str:
    """A table in Markdown."""
    rows = [
        (
            f"{plain(change.service)}, {change.load}, {change.figure}",
            number(change.before),
            number(change.after),
            _ratio(change.ratio),
            change.verdict,
        )
        for change in found
    ]
    return "\n".join(markdown_table(("", "before", "after", "after / before", "verdict"), rows))


def _measured(report: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {
        (subject["name"], level["title"]): measured
        for level in report["levels"]
        for subject, measured in zip(report["subjects"], level["subjects"], strict=True)
        if measured["latency_ms"] is not None
    }


def _change(
    service: str, load: str, figure: str, before: Estimate, after: Estimate, margin: float, *, higher_is_better: bool
) -> Change:
    ratio = _quotient(before, after)
    return Change(
        service=service,
        load=load,
        figure=figure,
        before=before.value,
        after=after.value,
        ratio=ratio,
        verdict=judge(ratio, margin=margin, higher_is_better=higher_is_better),
    )


def _quotient(a: Estimate, b: Estimate) -> Estimate:
    """B over A for independent estimates: half-widths on the logarithm add as squares."""
    value = b.value / a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(value=value)
    half = math.hypot(math.log(a.high / a.low), math.log(b.high / b.low)) / 2
    return Estimate(value=value, low=value * math.exp(-half), high=value * math.exp(half))


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(value=values["value"], low=values["low"], high=values["high"])


def _ratio(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3f}"
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _names(measured: Mapping[tuple[str, str], Any]) -> str:
    return ", ".join(f"{service} with {load}" for service, load in sorted(measured)) or "nothing"
