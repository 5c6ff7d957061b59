"""The regime map as one plain dictionary, and as Markdown and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from statistics import median
from typing import Any

import numpy as np

from loadtests import roofline
from loadtests.costs import flops_per_token
from loadtests.estimates import Estimate, estimate_percentile_ratio
from loadtests.load import Floats
from loadtests.markdown import listed, markdown_table, plain
from loadtests.page import html_figure, html_page, html_table
from loadtests.subjects import Subject
from loadtests.sweep import Cell, CellVisit, SweepPlan
from loadtests.sweep_plots import sweep_figures
from loadtests.tables import flops, size
from loadtests.verdict import judge

SCHEMA = "robal.loadtest.sweep/1"


def build_sweep(
    subjects: Sequence[Subject],
    plan: SweepPlan,
    visits: Sequence[CellVisit],
    *,
    bandwidths: Mapping[int, float],
    cache_bytes: int | None,
    machine: Mapping[str, Any],
    command: str,
    created: str,
) -> dict[str, Any]:
    """Everything that was found, as JSON values.

    Args:
        subjects: the baseline and the others, as opened at the first precision.
        plan: what was planned.
        visits: what happened.
        bandwidths: bytes per second from memory for each number of threads.
        cache_bytes: size of the last cache, if known; without it there is no prediction.
        machine: from ``describe_machine``.
        command: the command line that repeats it.
        created: ISO date and time.
    """
    maps = []
    for precision, threads in plan.settings:
        own = [
            [v for v in visits if (v.subject, v.precision, v.threads) == (index, precision, threads)]
            for index in range(len(subjects))
        ]
        cells = [_cell(cell, own, plan) for cell in plan.cells]
        found: dict[str, Any] = {
            "precision": precision,
            "threads": threads,
            "rss_bytes": [int(median(visit.rss_bytes for visit in life)) for life in own],
            "cells": cells,
        }
        if cache_bytes is not None:
            found["roofline"] = _predict(subjects, cells, precision, bandwidths[threads], cache_bytes)
        maps.append(found)
    told = [
        {key: value for key, value in asdict(subject).items() if key not in ("command", "config", "api", "model")}
        | {"flops_per_token": flops_per_token(subject.config or {})}
        for subject in subjects
    ]
    return {
        "schema": SCHEMA,
        "created": created,
        "verdict": {"clauses": _clauses(told, maps), "margin": plan.margin},
        "subjects": told,
        "maps": maps,
        "method": asdict(plan),
        "machine": dict(machine) | {"cache_bytes": cache_bytes, "bandwidths": dict(bandwidths)},
        "command": command,
    }


def _cell(cell: Cell, own: Sequence[Sequence[CellVisit]], plan: SweepPlan) -> dict[str, Any]:
    def rounds(life: Sequence[CellVisit], field: str) -> list[Floats]:
        return [
            np.array([getattr(s, field) for s in visit.samples if (s.length, s.texts) == (cell.length, cell.texts)])
            for visit in sorted(life, key=lambda visit: visit.round)
        ]

    engine = [rounds(life, "engine_ms") for life in own]
    latency = [rounds(life, "latency_ms") for life in own]
    ratios: list[dict[str, Any] | None] = [None]
    for other in range(1, len(own)):
        ratio = estimate_percentile_ratio(engine[0], engine[other], 50, seed=plan.seed)
        ratios.append(asdict(ratio) | {"verdict": judge(ratio, margin=plan.margin)})
    return {
        "length": cell.length,
        "texts": cell.texts,
        "engine_ms": [float(np.median(np.concatenate(each))) for each in engine],
        "latency_ms": [float(np.median(np.concatenate(each))) for each in latency],
        "ratios": ratios,
    }


def _predict(
    subjects: Sequence[Subject],
    cells: Sequence[Mapping[str, Any]],
    precision: str,
    bandwidth: float,
    cache_bytes: int,
) -> dict[str, Any] | None:
    """Predicted times. One number is taken from the measurement: the peak, from the baseline's cell of most tokens."""
    if precision not in roofline.BYTES or any(subject.config is None for subject in subjects):
        return None
    largest = max(cells, key=lambda cell: (cell["length"] * cell["texts"], cell["texts"]))
    base = subjects[0].config or {}
    tokens = largest["length"] * largest["texts"]
    peak = 1000 * tokens * flops_per_token(base, length=largest["length"]) / largest["engine_ms"][0]
    speeds = roofline.Machine(bandwidth=bandwidth, peak=peak, cache_bytes=cache_bytes)
    predicted = [
        [
            1000
            * roofline.predicted_s(
                subject.config or {},
                precision=precision,
                unique_blocks=roofline.unique_blocks(subject.config or {}, subject.unique_parameters or 0),
                texts=cell["texts"],
                length=cell["length"],
                machine=speeds,
            )
            for subject in subjects
        ]
        for cell in cells
    ]
    errors = [
        abs(np.log(guess[other] / guess[0] / cell["ratios"][other]["value"]))
        for guess, cell in zip(predicted, cells, strict=True)
        for other in range(1, len(subjects))
    ]
    return {
        "peak_flops": peak,
        "bandwidth": bandwidth,
        "engine_ms": predicted,
        "ratio_error": {"median": float(np.expm1(median(errors))), "largest": float(np.expm1(max(errors)))},
    }


def _clauses(subjects: Sequence[Mapping[str, Any]], maps: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for other in range(1, len(subjects)):
        for found in maps:
            verdicts: dict[str, list[Mapping[str, Any]]] = {}
            for cell in found["cells"]:
                verdicts.setdefault(cell["ratios"][other]["verdict"], []).append(cell)
            parts = [
                f"{_meaning(verdict, cells, other)} in {len(cells)}"
                for verdict in ("faster", "equivalent", "slower", "not enough data")
                if (cells := verdicts.get(verdict))
            ]
            said.append(
                f"{subjects[other]['name']} beside {subjects[0]['name']}, {found['precision']}, "
                f"{_threads(found['threads'])}: of {len(found['cells'])} shapes of a call it is {listed(parts)}"
            )
    return said


def _meaning(verdict: str, cells: Sequence[Mapping[str, Any]], other: int) -> str:
    if verdict == "not enough data":
        return "undecided"
    if verdict == "equivalent":
        return verdict
    most = max(cells, key=lambda cell: abs(np.log(cell["ratios"][other]["value"])))
    times = most["ratios"][other]["value"]
    fold = 1 / times if verdict == "faster" else times
    return f"{verdict} (most with {_shape(most)}: {fold:.2f}x)"


def _shape(cell: Mapping[str, Any]) -> str:
    return f"{cell['texts']} x {cell['length']} tokens"


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def render_sweep_markdown(report: Mapping[str, Any]) -> str:
    """The whole report as text; the verdict first."""
    names = [plain(subject["name"]) for subject in report["subjects"]]
    lines = [f"# Regime map: {listed(names)}", ""]
    lines += [f"- {plain(clause)}." for clause in report["verdict"]["clauses"]]
    lines += ["", *markdown_table(("", *names), _subject_rows(report))]
    for found in report["maps"]:
        lines += ["", f"## {found['precision']}, {_threads(found['threads'])}", "", *_about(found), ""]
        lines += markdown_table(_columns(report), _cell_rows(report, found))
    lines += ["", "## Method and machine", "", *(f"- {name}: {value}" for name, value in _facts(report)), ""]
    return "\n".join(lines)


def render_sweep_page(report: dict[str, Any]) -> str:
    """The whole report as HTML that needs nothing else."""
    names = [subject["name"] for subject in report["subjects"]]
    listing = escape(listed(names))
    clauses = "".join(f"<li>{escape(clause)}</li>" for clause in report["verdict"]["clauses"])
    parts = [
        f"<header><h1>Regime map</h1><p>{listing}, {escape(report['created'])}</p></header>",
        f'<section class="verdict"><ul>{clauses}</ul></section>',
        f"<section><h2>What each takes</h2>{html_table(['', *names], _subject_rows(report))}</section>",
    ]
    parts += [html_figure(title, caption, svg) for title, caption, svg in sweep_figures(report)]
    for found in report["maps"]:
        table = html_table(_columns(report), _cell_rows(report, found))
        about = escape(" ".join(_about(found)))
        title = f"{escape(found['precision'])}, {_threads(found['threads'])}"
        parts.append(f"<section><h2>{title}</h2><p>{about}</p>{table}</section>")
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in _facts(report))
    parts.append(f"<section><h2>Method and machine</h2><dl>{pairs}</dl></section>")
    return html_page(f"{listing}: regime map", "".join(parts))


def _columns(report: Mapping[str, Any]) -> list[str]:
    first, *others = [subject["name"] for subject in report["subjects"]]
    columns = ["texts x tokens", f"{first}, ms"]
    for other in others:
        columns += [f"{other}, ms", f"{other} / {first}", "predicted"]
    return columns


def _cell_rows(report: Mapping[str, Any], found: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for number, cell in enumerate(found["cells"]):
        row = [f"{cell['texts']} x {cell['length']}", f"{cell['engine_ms'][0]:.1f}"]
        for other in range(1, len(report["subjects"])):
            ratio = cell["ratios"][other]
            row += [
                f"{cell['engine_ms'][other]:.1f}",
                f"{_interval(ratio)} {ratio['verdict']}",
                _guess(found, number, other),
            ]
        rows.append(row)
    return rows


def _guess(found: Mapping[str, Any], number: int, other: int) -> str:
    if not found.get("roofline"):
        return ""
    times = found["roofline"]["engine_ms"][number]
    return f"{times[other] / times[0]:.2f}"


def _interval(ratio: Mapping[str, Any]) -> str:
    estimate = Estimate(value=ratio["value"], low=ratio["low"], high=ratio["high"])
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _about(found: Mapping[str, Any]) -> list[str]:
    about = ["Median time in the engine for one call, and its ratio with a 95 % confidence interval."]
    if predicted := found.get("roofline"):
        error = predicted["ratio_error"]
        about.append(
            f"Predicted from {predicted['bandwidth'] / 1e9:.1f} GB/s of memory and "
            f"{predicted['peak_flops'] / 1e9:.0f} GFLOP/s; the predicted ratios are off by {error['median']:.1%} "
            f"in the median, {error['largest']:.0%} at most."
        )
    return about


def _subject_rows(report: Mapping[str, Any]) -> list[list[str]]:
    subjects = report["subjects"]
    rows = [
        ["parameters stored", *(f"{subject['unique_parameters'] / 1e6:.1f} M" for subject in subjects)],
        ["operations per token", *(flops(subject["flops_per_token"]) for subject in subjects)],
    ]
    for found in report["maps"]:
        label = f"memory of the server, {found['precision']}, {_threads(found['threads'])}"
        rows.append([label, *map(size, found["rss_bytes"])])
    return rows


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    machine, method = report["machine"], report["method"]
    cache = "not known" if machine["cache_bytes"] is None else size(machine["cache_bytes"])
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items() if value)
    return [
        ("command", report["command"]),
        ("rounds", f"{method['rounds']}, visits in the order A B B A, {method['cycles']} measured cycles each"),
        ("machine", f"{machine['processor']}, {machine['cores_usable']} cores usable, last cache {cache}"),
        ("load average before", f"{machine['load_average_before']:.2f}"),
        ("versions", versions),
        *(
            (subject["name"], f"{subject['source']}, manifest sha256 {subject['sha256']}")
            for subject in report["subjects"]
        ),
    ]
