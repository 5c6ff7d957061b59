"""Latency against rate, with the knee: a plain dictionary, Markdown and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from contract.storage import replace_folder, write_atomic, write_json
from loadtests.knee import Knee, KneePlan
from loadtests.markdown import listed, markdown_table, plain
from loadtests.page import html_figure, html_page, html_table
from loadtests.plots import COLORS, MUTED, drawing, legend, svg
from loadtests.subjects import Subject

SCHEMA = "robal.loadtest.knee/1"
JSON, MARKDOWN, PAGE = "knee.json", "knee.md", "knee.html"


def build_knee(
    subjects: Sequence[Subject],
    plan: KneePlan,
    knees: Sequence[Knee],
    *,
    machine: Mapping[str, Any],
    traffic: Mapping[str, Any],
    command: str,
    created: str,
) -> dict[str, Any]:
    """Everything that was found, as JSON values."""
    services = [
        {"name": subject.name, "source": subject.source, "sha256": subject.sha256, "precision": subject.precision}
        | knee.facts()
        for subject, knee in zip(subjects, knees, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "created": created,
        "verdict": {"clauses": [_clause(service, plan) for service in services]},
        "services": services,
        "method": {
            "target_ms": plan.target_ms,
            "percent": plan.percent,
            "measured_s": plan.seconds,
            "warmup_s": plan.warmup_s,
            "threads": plan.threads,
            "seed": plan.seed,
        },
        "traffic": dict(traffic),
        "machine": dict(machine),
        "command": command,
    }


def _clause(service: Mapping[str, Any], plan: KneePlan) -> str:
    promise = f"p{plan.percent:g} within {plan.target_ms:g} ms"
    if service["rate"] is None:
        return f"{service['name']} keeps {promise} at no rate that was tried, the lowest {service['failed_rate']:.3g}/s"
    beyond = service["failed_rate"]
    until = f", and no more at {beyond:.3g}/s" if beyond is not None else " and above"
    return f"{service['name']} keeps {promise} up to {service['rate']:.3g} arrivals/s{until}"


def write_knee(out: Path, report: dict[str, Any]) -> None:
    """Write the three files in one step."""
    with replace_folder(out) as folder:
        write_json(folder / JSON, report)
        write_atomic(folder / MARKDOWN, _markdown(report))
        write_atomic(folder / PAGE, _page(report))


def _rows(service: Mapping[str, Any]) -> list[list[str]]:
    def ms(value: float | None) -> str:
        return "none" if value is None else f"{value:.1f}"

    return [
        [
            f"{step['rate']:.3g}",
            ms(step["p50_ms"]),
            ms(step["p99_ms"]),
            f"{step['completed_per_s']:.3g}",
            f"{step['arrivals']}",
            "kept" if step["kept"] else step["problem"],
        ]
        for step in service["steps"]
    ]


COLUMNS = ("arrivals per s", "p50, ms", "p99, ms", "right answers per s", "arrivals", "promise")


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    machine, method = report["machine"], report["method"]
    return [
        ("command", report["command"]),
        ("each rate", f"{method['warmup_s']:g} s warm-up, {method['measured_s']:g} s measured, Poisson arrivals"),
        ("server threads", str(method["threads"])),
        ("machine", f"{machine['processor']}, {machine['cores_usable']} cores usable, {machine['system']}"),
        ("load average before", f"{machine['load_average_before']:.2f}"),
        ("traffic sha256", report["traffic"]["sha256"]),
        *((service["name"], f"{service['source']} {service['sha256'] or ''}") for service in report["services"]),
    ]


def _markdown(report: Mapping[str, Any]) -> str:
    names = [plain(service["name"]) for service in report["services"]]
    lines = [f"# Latency against rate: {listed(names)}", ""]
    lines += [f"- {plain(clause)}." for clause in report["verdict"]["clauses"]]
    for name, service in zip(names, report["services"], strict=True):
        lines += [
            "",
            f"## {name}",
            "",
            f"With 8 users in a closed loop: {service['capacity_per_s']:.3g} answers/s.",
            "",
        ]
        lines += markdown_table(COLUMNS, _rows(service))
    lines += ["", "## Method and machine", "", *(f"- {name}: {value}" for name, value in _facts(report)), ""]
    return "\n".join(lines)


def _page(report: Mapping[str, Any]) -> str:
    names = [escape(service["name"]) for service in report["services"]]
    clauses = "".join(f"<li>{escape(clause)}</li>" for clause in report["verdict"]["clauses"])
    parts = [
        f"<header><h1>Latency against rate</h1><p>{listed(names)}, {escape(report['created'])}</p></header>",
        f'<section class="verdict"><ul>{clauses}</ul></section>',
        html_figure(
            "What arrivals wait",
            "Whole line: p50. Dashed: p99. Circle: the promise was kept; cross: it was not. Vertical: the knee.",
            knee_figure(report),
        ),
    ]
    for name, service in zip(names, report["services"], strict=True):
        parts.append(f"<section><h2>{name}</h2>{html_table(COLUMNS, _rows(service))}</section>")
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in _facts(report))
    parts.append(f"<section><h2>Method and machine</h2><dl>{pairs}</dl></section>")
    return html_page(f"{listed(names)}: latency against rate", "".join(parts))


def knee_figure(report: Mapping[str, Any]) -> str:
    """Latency against rate, as SVG."""
    with drawing():
        figure = Figure(figsize=(8.4, 4.2), layout="constrained")
        axes = figure.subplots()
        target = report["method"]["target_ms"]
        axes.axhline(target, color=MUTED, lw=1)
        for color, service in zip(COLORS, report["services"], strict=False):
            steps = [step for step in service["steps"] if step["p50_ms"] is not None]
            rates = [step["rate"] for step in steps]
            axes.plot(rates, [step["p50_ms"] for step in steps], color=color, lw=2)
            axes.plot(rates, [step["p99_ms"] for step in steps], color=color, lw=1.5, ls="--")
            for kept, marker in ((True, "o"), (False, "x")):
                chosen = [step for step in steps if step["kept"] is kept]
                axes.plot([s["rate"] for s in chosen], [s["p99_ms"] for s in chosen], ls="", marker=marker, color=color)
            if service["rate"] is not None:
                axes.axvline(service["rate"], color=color, lw=1, alpha=0.5)
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.set_xlabel("arrivals per second")
        axes.set_ylabel("latency, ms")
        legend(figure, [service["name"] for service in report["services"]])
        return svg(figure)
