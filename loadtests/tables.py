"""The report's numbers as rows of words, for the Markdown and the HTML page alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a table that compares A and B."""

    label: str
    a: str
    b: str
    ratio: str = ""
    """B / A."""
    verdict: str = ""


def bundle_rows(report: Mapping[str, Any]) -> list[Row]:
    """What each bundle is and takes, apart from time."""
    a, b = report["bundles"]

    def row(label: str, first: float | None, second: float | None, form: Any) -> Row:
        if first is None or second is None:
            return Row(label=label, a="not known", b="not known")
        return Row(label=label, a=form(first), b=form(second), ratio=f"{second / first:.3g}")

    memory = [bundle["memory"] for bundle in (a, b)]

    def memory_row(label: str, key: str) -> Row:
        return row(label, memory[0][key], memory[1][key], size)

    return [
        row("parameters in use", a["parameters"], b["parameters"], count),
        row("parameters stored", a["unique_parameters"], b["unique_parameters"], count),
        row("size on disk", a["size_bytes"], b["size_bytes"], size),
        memory_row("memory after load", "after_load_rss_bytes"),
        memory_row("memory at its peak", "peak_rss_bytes"),
        memory_row("memory, shared pages split", "after_load_pss_bytes"),
        row("start until ready", a["start_s"], b["start_s"], lambda value: f"{value:.1f} s"),
    ]


def level_rows(level: Mapping[str, Any]) -> list[Row]:
    """Latency, throughput, cost and counts at one number of users."""
    a, b = level["bundles"]
    rows = []
    if level["ratios"] is not None:
        rows += [
            _estimated(f"{name} latency, ms", a["latency_ms"][name], b["latency_ms"][name], level["ratios"][name])
            for name in ("p50", "p95", "p99")
        ]
        rows += [
            _estimated("requests per s", a["requests_per_s"], b["requests_per_s"], level["ratios"]["throughput"]),
            _estimated("tokens per s", a["tokens_per_s"], b["tokens_per_s"], None),
            _plain("tokens per text", a["tokens_per_text"], b["tokens_per_text"]),
            _plain("server CPU s per 1,000 texts", a["server_cpu_s_per_1000_texts"], b["server_cpu_s_per_1000_texts"]),
        ]
    return rows


def count_rows(level: Mapping[str, Any]) -> list[Row]:
    """What was counted and checked at one number of users; no ratios."""
    a, b = level["bundles"]

    def row(label: str, form: Any) -> Row:
        return Row(label=label, a=form(a), b=form(b))

    def failures(measured: Mapping[str, Any]) -> str:
        requests = measured["requests"]
        return f"{requests['error']} / {requests['refused']} / {requests['wrong']}"

    def warmup(measured: Mapping[str, Any]) -> str:
        first = measured["warmup"]["first_ms"]
        return f"{measured['warmup']['requests']:,}" + (f" (first: {first:.1f} ms)" if first is not None else "")

    return [
        row("requests measured", lambda measured: f"{measured['requests']['steady']:,}"),
        row("errors / refusals / wrong answers", failures),
        row("requests of the warm-up, not measured", warmup),
        row("slowest measured request, ms", lambda m: f"{m['latency_ms']['max']:.1f}" if m["latency_ms"] else "none"),
        row("generator: share of a core", lambda measured: f"{measured['generator']['cpu_share']:.0%}"),
        row("generator: lateness p99, ms", lambda measured: f"{measured['generator']['lateness_p99_ms']:.1f}"),
    ]


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Method, machine and versions as pairs of words."""
    method, machine, traffic = report["method"], report["machine"], report["traffic"]
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items() if value)
    cores = f"{machine['cores_usable']} cores usable, memory {size(machine['memory_bytes'])}"
    pairs = [
        ("command", report["command"]),
        ("order of visits", method["order"]),
        ("each visit", f"{method['warmup_s']:g} s warm-up, {method['measured_s']:g} s measured per number of users"),
        ("load", f"closed loop, {', '.join(str(level['users']) for level in report['levels'])} users"),
        ("traffic", f"{traffic['source']}; {traffic['count']:,} texts, seed {method['seed']}"),
        ("traffic sha256", traffic["sha256"]),
        ("server threads", str(method["threads"])),
        ("machine", f"{machine['processor']}, {cores}, {machine['system']}"),
        ("load average before", f"{machine['load_average_before']:.2f}"),
        ("versions", versions),
        ("settings", " ".join(f"{name}={value}" for name, value in machine["settings"].items()) or "none"),
    ]
    for bundle in report["bundles"]:
        pairs.append((bundle["name"], f"{bundle['bundle']} ({bundle['family']}, {bundle['precision']})"))
        pairs.append((f"{bundle['name']} manifest sha256", bundle["sha256"]))
    return pairs


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


def _estimated(label: str, a: Mapping[str, Any], b: Mapping[str, Any], ratio: Mapping[str, Any] | None) -> Row:
    if ratio is None:
        return Row(label=label, a=_interval(a), b=_interval(b), ratio=f"{b['value'] / a['value']:.3f}")
    return Row(label=label, a=_interval(a), b=_interval(b), ratio=_interval(ratio, 3), verdict=ratio["verdict"])


def _plain(label: str, a: float, b: float) -> Row:
    return Row(label=label, a=_number(a), b=_number(b), ratio=f"{b / a:.3f}")


def _interval(values: Mapping[str, Any], digits: int | None = None) -> str:
    def form(number: float) -> str:
        return _number(number) if digits is None else f"{number:.{digits}f}"

    if values["low"] is None:
        return form(values["value"])
    return f"{form(values['value'])} ({form(values['low'])} to {form(values['high'])})"


def _number(value: float) -> str:
    """Three digits, never in powers of ten."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
