"""The report's figures as SVG text, without a reference to anything outside of it."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Callable, Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.ablate_report import NSP, SOP, Report, Row, Table, spread

COLORS = ("#2f6690", "#e07a2f", "#3d8b5f", "#8e5ea2")
"""Blue, orange, green, violet: told apart also by colour-blind readers, with the markers."""
MARKERS = ("o", "s", "^", "D")
INK, MUTED, GRID = "#1f2933", "#66737f", "#e4e8ec"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "robal",
}


def figures(report: Report) -> dict[str, str]:
    """SVG by experiment."""
    drawn: dict[str, str] = {}
    with matplotlib.rc_context(STYLE):
        for table in report.tables:
            draw = DRAWN.get(table.experiment.name, _bars)
            figure = draw(table)
            if figure is not None:
                drawn[table.experiment.name] = _svg(figure)
    return drawn


def _bars(table: Table) -> Figure | None:
    """The last column, a bar for each row, a dot for each seed."""
    column = table.columns[-1]
    rows = [row for row in table.rows if row.values[column.name]]
    if not rows:
        return None
    figure = Figure(figsize=(7.5, 0.5 + 0.42 * len(rows)), layout="constrained")
    axes: Axes = figure.subplots()
    names = {variant.name for variant in table.experiment.variants}
    for place, row in enumerate(reversed(rows)):
        values = row.values[column.name]
        axes.barh(
            place,
            statistics.fmean(values),
            xerr=spread(values),
            height=0.62,
            color=COLORS[0] if row.name in names else GRID,
            alpha=0.85,
            error_kw={"ecolor": INK, "capsize": 3},
        )
        axes.plot(values, [place] * len(values), "o", color=INK, markersize=3)
    axes.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], color=INK)
    axes.set_xlabel(f"{column.name}, mean and standard deviation over seeds; dots are seeds")
    lowest = min(min(row.values[column.name]) for row in rows)
    highest = max(max(row.values[column.name]) for row in rows)
    axes.set_xlim(lowest - 0.25 * (highest - lowest) - 1, highest + 0.1 * (highest - lowest) + 1)
    axes.grid(visible=False, axis="y")
    return figure


def _lines(
    axes: Axes, groups: Mapping[str, Sequence[tuple[float, Sequence[float]]]], *, log: bool, ticks: Sequence[float]
) -> None:
    """Mean and spread against a number, a line for each group."""
    for (name, points), color, marker in zip(groups.items(), COLORS, MARKERS, strict=False):
        ordered = sorted(points, key=lambda point: point[0])
        axes.errorbar(
            [place for place, _ in ordered],
            [statistics.fmean(values) for _, values in ordered],
            yerr=[spread(values) for _, values in ordered],
            color=color,
            marker=marker,
            capsize=3,
            label=name,
        )
    if log:
        axes.set_xscale("log", base=2)
    axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _number(row: Row) -> float | None:
    match = re.search(r"\d+", row.name)
    return float(match[0]) if match else None


def _embedding(table: Table) -> Figure | None:
    """Score against E, a line for each kind of sharing."""
    return _numbered(table, lambda row: row.name.partition(", ")[2], "width E of the embeddings")


def _depth(table: Table) -> Figure | None:
    """Score against the number of layers."""
    return _numbered(table, lambda row: "shared weights", "layers")


def _numbered(table: Table, group: Callable[[Row], str], label: str) -> Figure | None:
    column = table.columns[-1]
    names = {variant.name for variant in table.experiment.variants}
    groups: dict[str, list[tuple[float, Sequence[float]]]] = {}
    for row in table.rows:
        number = _number(row)
        if row.name in names and row.values[column.name] and number is not None:
            groups.setdefault(group(row), []).append((number, row.values[column.name]))
    if not groups:
        return None
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes: Axes = figure.subplots()
    _lines(axes, groups, log=True, ticks=sorted({place for points in groups.values() for place, _ in points}))
    axes.set_xlabel(label)
    axes.set_ylabel(column.name)
    if len(groups) > 1:
        axes.legend(title="shared")
    return figure


def _cross(table: Table) -> Figure | None:
    """NSP and SOP accuracy of each training objective, ours and the paper's."""
    names = {variant.name for variant in table.experiment.variants}
    rows = [row for row in table.rows if row.name in names and row.values[NSP.name] and row.values[SOP.name]]
    if not rows:
        return None
    figure = Figure(figsize=(7.5, 3.0), layout="constrained")
    axes: Axes = figure.subplots()
    width = 0.36
    for offset, column, color in ((-width / 2, NSP, COLORS[0]), (width / 2, SOP, COLORS[1])):
        places = [place + offset for place in range(len(rows))]
        means = [statistics.fmean(row.values[column.name]) for row in rows]
        errors = [spread(row.values[column.name]) for row in rows]
        label = f"tested on {column.name.removesuffix(' %')}"
        axes.bar(places, means, width, yerr=errors, color=color, alpha=0.85, label=label, error_kw={"capsize": 3})
        paper = [float(row.published[column.name.removesuffix(" %")]) for row in rows]
        axes.plot(places, paper, "_", color=INK, markersize=22, markeredgewidth=2)
    axes.plot([], [], "_", color=INK, markersize=12, markeredgewidth=2, label="published")
    axes.axhline(50, color=MUTED, linestyle=":")
    axes.set_xticks(range(len(rows)), [f"trained on {row.name}" for row in rows], color=INK)
    axes.set_ylabel("accuracy %")
    axes.set_ylim(0, 105)
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    axes.grid(visible=False, axis="x")
    return figure


def _layers(table: Table) -> Figure | None:
    """Distance and angle between input and output of each layer."""
    rows = [row for row in table.rows if row.layers]
    if not rows:
        return None
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    for axes, name, label in zip(
        figure.subplots(1, 2), ("distance", "degrees"), ("L2 distance", "angle in degrees"), strict=True
    ):
        for row, color, marker in zip(rows, COLORS, MARKERS, strict=False):
            values = row.layers[name]
            axes.plot(range(1, len(values) + 1), values, color=color, marker=marker, markersize=4, label=row.name)
        axes.set_xlabel("layer")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


DRAWN: Mapping[str, Callable[[Table], Figure | None]] = {
    "sentence": _cross,
    "embedding": _embedding,
    "depth": _depth,
    "layers": _layers,
}


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
