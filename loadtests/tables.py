"""The report's numbers as rows of words, for the Markdown and the HTML page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a table with a column for each service."""

    label: str
    values: Sequence[str]
    ratios: Sequence[str] = ()
    """Of each service but the first to the first."""
    verdicts: Sequence[str] = ()


Form: TypeAlias = Callable[[float], str]
UNKNOWN = "not known"


def subject_rows(report: Mapping[str, Any]) -> list[Row]:
    """What each service is and takes, apart from time; what is known of none is left out."""
    subjects = report["subjects"]

    def row(label: str, form: Form, *path: str) -> Row | None:
        return _row(label, form, [_at(subject, *path) for subject in subjects])

    rows = [
        row("parameters in use", count, "parameters"),
        row("parameters stored", count, "unique_parameters"),
        row("operations per token", flops, "flops_per_token"),
        row("size on disk", size, "size_bytes"),
        row("memory at the start", size, "memory", "at_start_rss_bytes"),
        row("memory at its peak", size, "memory", "peak_rss_bytes"),
        row("memory after load", size, "memory", "after_load_rss_bytes"),
        row("memory, shared pages split", size, "memory", "after_load_pss_bytes"),
        row("start until ready", lambda value: f"{value:.1f} s", "start_s"),
    ]
    return [each for each in rows if each is not None]


def level_rows(level: Mapping[str, Any]) -> list[Row]:
    """Latency, throughput and cost at one load; empty when somebody answered nothing."""
    subjects = level["subjects"]
    if any(measured["latency_ms"] is None for measured in subjects):
        return []

    def estimated(label: str, ratio: str | None, *path: str) -> Row | None:
        found = [_at(measured, *path) for measured in subjects]
        if any(each is None for each in found):
            return None
        judged = [level["ratios"][other] for other in range(1, len(subjects))]
        if ratio is None or any(each is None for each in judged):
            plain = [f"{each['value'] / found[0]['value']:.3f}" for each in found[1:]]
            return Row(label=label, values=[_interval(each) for each in found], ratios=plain)
        return Row(
            label=label,
            values=[_interval(each) for each in found],
            ratios=[_interval(each[ratio], 3) for each in judged],
            verdicts=[each[ratio]["verdict"] for each in judged],
        )

    def plain(label: str, *path: str) -> Row | None:
        return _row(label, number, [_at(measured, *path) for measured in subjects])

    rows = [
        *(estimated(f"{name} latency, ms", name, "latency_ms", name) for name in ("p50", "p95", "p99")),
        estimated("requests per s", "throughput", "requests_per_s"),
        plain("useful answers per s", "goodput_per_s"),
        estimated("tokens per s", None, "tokens_per_s"),
        plain("tokens per text", "tokens_per_text"),
        plain("server CPU s per 1,000 texts", "server_cpu_s_per_1000_texts"),
    ]
    return [row for row in rows if row is not None]


def count_rows(level: Mapping[str, Any]) -> list[Row]:
    """What was counted and checked at one load; no ratios."""

    def row(label: str, form: Callable[[Mapping[str, Any]], str]) -> Row:
        return Row(label=label, values=[form(measured) for measured in level["subjects"]])

    def failures(measured: Mapping[str, Any]) -> str:
        requests = measured["requests"]
        return " / ".join(str(requests[name]) for name in ("error", "refused", "wrong", "dropped"))

    def warmup(measured: Mapping[str, Any]) -> str:
        first = measured["warmup"]["first_ms"]
        return f"{measured['warmup']['requests']:,}" + (f" (first: {first:.1f} ms)" if first is not None else "")

    return [
        row("requests measured", lambda measured: f"{measured['requests']['steady']:,}"),
        row("errors / refusals / wrong answers / dropped", failures),
        row("texts with another label than expected", lambda m: f"{m['requests']['mislabelled_texts']:,}"),
        row("requests of the warm-up, not measured", warmup),
        row("slowest measured request, ms", lambda m: f"{m['latency_ms']['max']:.1f}" if m["latency_ms"] else "none"),
        row("generator: share of a core", lambda measured: f"{measured['generator']['cpu_share']:.0%}"),
        row("generator: lateness p99, ms", lambda measured: f"{measured['generator']['lateness_p99_ms']:.1f}"),
        row("generator: sent late p99, ms", lambda measured: f"{measured['generator']['send_late_p99_ms']:.1f}"),
    ]


def heads(report: Mapping[str, Any]) -> list[str]:
    """Names of the services, then of the columns of ratios."""
    first, *others = [subject["name"] for subject in report["subjects"]]
    return [first, *others, *(f"{other} / {first}" for other in others)]


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Method, machine and versions as pairs of words."""
    method, machine, traffic = report["method"], report["machine"], report["traffic"]
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items() if value)
    cores = f"{machine['cores_usable']} cores usable, memory {size(machine['memory_bytes'])}"
    speeds = method["calibration_ms"]
    pairs = [
        ("command", report["command"]),
        ("order of visits", method["order"]),
        ("each visit", f"{method['warmup_s']:g} s warm-up, {method['measured_s']:g} s measured per load"),
        ("load", "; ".join(_load(level) for level in report["levels"])),
        ("generator", f"{method['processes']} process{'es' if method['processes'] > 1 else ''}"),
        ("traffic", f"{traffic['source']}; {traffic['count']:,} texts, seed {method['seed']}"),
        ("traffic sha256", traffic["sha256"]),
        ("server threads", str(method["threads"])),
        ("pinned", "no" if method["cores"] is None else f"servers to cores {method['cores']}"),
        ("a fixed piece of work took", f"{min(speeds):.2f} to {max(speeds):.2f} ms"),
        ("machine", f"{machine['processor']}, {cores}, {machine['system']}"),
        ("load average before", f"{machine['load_average_before']:.2f}"),
        ("versions", versions),
        ("settings", " ".join(f"{name}={value}" for name, value in machine["settings"].items()) or "none"),
    ]
    for subject in report["subjects"]:
        what = f"{subject['family']}, {subject['precision']}" if subject["family"] else f"protocol {subject['api']}"
        pairs.append((subject["name"], f"{subject['source']} ({what})"))
        if subject["sha256"]:
            pairs.append((f"{subject['name']} manifest sha256", subject["sha256"]))
    return pairs


def _load(level: Mapping[str, Any]) -> str:
    if level["loop"] == "closed":
        return f"closed loop, {level['title']}"
    kind = "a trace" if level["burstiness"] is None else f"gaps of coefficient of variation {level['burstiness']:g}"
    return f"open loop, {level['title']}, {kind}"


def size(value: float) -> str:
    """Bytes in the unit that gives one to three digits before the point."""
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def count(value: float) -> str:
    """A number of parameters, in full below a million."""
    return f"{value / 1e6:,.1f} M" if value >= 1e6 else f"{value:,.0f}"


def flops(value: float) -> str:
    """Floating-point operations in millions."""
    return f"{value / 1e6:,.1f} M"


def number(value: float) -> str:
    """Three digits, never in powers of ten."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _row(label: str, form: Form, values: Sequence[float | None]) -> Row | None:
    if all(value is None for value in values):
        return None
    base = values[0]
    return Row(
        label=label,
        values=[UNKNOWN if value is None else form(value) for value in values],
        ratios=["" if value is None or not base else f"{value / base:.3g}" for value in values[1:]],
    )


def _at(value: Any, *path: str) -> Any:
    """A nested value, None as soon as one on the way is."""
    for key in path:
        value = None if value is None else value.get(key)
    return value


def _interval(values: Mapping[str, Any], digits: int | None = None) -> str:
    def form(value: float) -> str:
        return number(value) if digits is None else f"{value:.{digits}f}"

    if values["low"] is None:
        return form(values["value"])
    return f"{form(values['value'])} ({form(values['low'])} to {form(values['high'])})"
