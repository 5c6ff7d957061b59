"""The report's figures, as SVG text without a reference to anything outside of it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#2f6690", "#e07a2f", "#3a8f5c", "#8a4f9e", "#c0392b", "#7a6a2f", "#52606d", "#d081a8")
"""Of the services in order; blue and orange first, which colour-blind readers can tell apart."""
INK, MUTED, GRID, BAND = "#1f2933", "#66737f", "#e4e8ec", "#e9f3ec"
STAGE_COLORS = ("#a9c5d9", "#d8dde2", "#2f6690", "#8fa3b3", "#e8b48a")
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Liberation Sans", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
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
    "text.parse_math": False,  # names are the user's, and may hold a dollar sign
}


def figures(report: dict[str, Any]) -> dict[str, str]:
    """SVG by name; a figure whose data are missing is left out."""
    levels = [level for level in report["levels"] if all(each["latency_ms"] for each in level["subjects"])]
    if not levels:
        return {}
    names = [subject["name"] for subject in report["subjects"]]
    compared = [level for level in levels if any(level["ratios"])]
    with drawing():
        drawn = {
            "distributions": _distributions(levels, names),
            "rounds": _rounds(levels, names, report["method"]["order"]),
        }
        if compared:
            drawn["ratios"] = _ratios(compared, report["verdict"]["margin"], names)
        if compared and all(bands for level in compared for bands in level["bands"][1:]):
            drawn["lengths"] = _lengths(compared, names)
        if all(measured["stages_ms"] for level in levels for measured in level["subjects"]):
            drawn["stages"] = _stages(levels, names)
        return {name: svg(figure) for name, figure in drawn.items()}


def drawing() -> AbstractContextManager[None]:
    """Our style for the length of a ``with`` block."""
    return matplotlib.rc_context(STYLE)


def _ratios(levels: Sequence[dict[str, Any]], margin: float, names: Sequence[str]) -> Figure:
    """Each ratio with its interval, against 1 and the margin."""
    rows = [
        (f"{level['title']}  {name}", number, level["ratios"][number][name])
        for level in levels
        for name in ("p50", "p95", "p99", "throughput")
        for number in range(1, len(names))
        if level["ratios"][number] is not None
    ]
    figure = Figure(figsize=(8.4, 0.9 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, lw=0, zorder=0)
    axes.axvline(1, color=MUTED, lw=1)
    for row, (_, number, ratio) in enumerate(rows):
        words = f"{ratio['value']:.2f}"
        if ratio["low"] is None:
            axes.plot(ratio["value"], row, marker="o", ms=6, mfc="white", mec=COLORS[number])
        else:
            axes.plot([ratio["low"], ratio["high"]], [row, row], color=COLORS[number], lw=2.2, solid_capstyle="round")
            axes.plot(ratio["value"], row, marker="o", ms=6, color=COLORS[number])
            words += f"  ({ratio['low']:.2f} to {ratio['high']:.2f})"
        axes.text(1.02, row, words, transform=axes.get_yaxis_transform(), va="center", color=INK)
    # At least the margin twice over, so that equivalent servers look equivalent; at most a factor of 2.
    ends = [
        value for _, _, ratio in rows for value in (ratio["low"], ratio["value"], ratio["high"]) if value is not None
    ]
    low, high = min([*ends, 1 / (1 + 2 * margin)]), max([*ends, 1 + 2 * margin])
    axes.set_xlim(max(0.5, low * 0.98), min(2, high * 1.02))
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    others = names[1] if len(names) == 2 else "each"
    axes.set_xlabel(f"{others} / {names[0]}   (shaded: within {margin:.0%}; hollow: too few data for an interval)")
    if len(names) > 2:
        legend(figure, names[1:], COLORS[1:])
    return figure


def _distributions(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Share of requests answered within a time, one panel per number of users."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for color, measured in zip(COLORS, level["subjects"], strict=False):
            axes.plot(measured["percentiles_ms"], range(101), color=color, lw=2)
        # The slowest half percent would squeeze everything else to the left.
        axes.set_xlim(0, 1.1 * max(measured["percentiles_ms"][99] for measured in level["subjects"]))
        axes.set_ylim(0, 100)
        axes.set_title(level["title"])
        axes.set_xlabel("latency, ms")
    panels[0].set_ylabel("answered within, %")
    legend(figure, names)
    return figure


def _lengths(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Median latency for each quarter of the texts."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for number, color in zip(range(len(names)), COLORS, strict=False):
            bands = level["bands"][max(number, 1)]  # the baseline's own numbers stand beside each rival's
            place = min(number, 1)
            x = [band["tokens"][place] for band in bands]
            axes.plot(x, [band["p50_ms"][place] for band in bands], color=color, marker="o", lw=2)
        axes.set_ylim(0, 1.1 * max(max(band["p50_ms"]) for bands in level["bands"][1:] for band in bands))
        axes.set_xlim(left=0)
        axes.set_title(level["title"])
        axes.set_xlabel("median tokens of the quarter")
    panels[0].set_ylabel("median latency, ms")
    legend(figure, names)
    return figure


def _rounds(levels: Sequence[dict[str, Any]], names: Sequence[str], order: str) -> Figure:
    """Medians in the order they were measured: a drift of the machine would show as a slope."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for letter, color, measured in zip("ABCDEFGH", COLORS, level["subjects"], strict=False):
            at = [visit + 1 for visit, own in enumerate(order) if own == letter]
            if len(at) != len(measured["p50_by_round_ms"]):  # parts of one long stretch
                at = list(range(1, len(measured["p50_by_round_ms"]) + 1))
            axes.plot(at, measured["p50_by_round_ms"], color=color, marker="o", lw=1, alpha=0.9)
        axes.set_ylim(0, 1.1 * max(max(measured["p50_by_round_ms"]) for measured in level["subjects"]))
        if 1 < len(order) <= 24:
            axes.set_xticks(range(1, len(order) + 1), list(order))
        axes.grid(axis="x", visible=False)
        axes.set_title(level["title"])
        axes.set_xlabel("visit, in order of time" if len(order) > 1 else "part of the time")
    panels[0].set_ylabel("median latency, ms")
    legend(figure, names)
    return figure


def _stages(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Where the mean latency is spent."""
    figure = Figure(figsize=(8.4, 0.9 + 0.8 * len(levels)), layout="constrained")
    axes = figure.subplots()
    rows = [
        (f"{name}, {level['title']}", m) for level in levels for name, m in zip(names, level["subjects"], strict=True)
    ]
    for row, (_, measured) in enumerate(rows):
        left = 0.0
        for color, (stage, value) in zip(STAGE_COLORS, measured["stages_ms"].items(), strict=True):
            axes.barh(row, value, left=left, color=color, height=0.62, label=stage if row == 0 else None)
            left += value
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("mean latency, ms")
    figure.legend(loc="outside upper left", ncols=5, handlelength=1, columnspacing=1.2)
    return figure


def _panels(levels: Sequence[dict[str, Any]]) -> tuple[Figure, list[Axes]]:
    columns = min(len(levels), 3)
    rows = -(-len(levels) // columns)
    figure = Figure(figsize=(8.4, 0.3 + 2.9 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[len(levels) :]:
        spare.set_visible(False)
    return figure, panels[: len(levels)]


def legend(figure: Figure, names: Sequence[str], colors: Sequence[str] = COLORS) -> None:
    """Names of the services above a drawing."""
    handles = [matplotlib.lines.Line2D([], [], color=color, lw=3) for color in colors[: len(names)]]
    figure.legend(handles, names, loc="outside upper left", ncols=min(len(names), 4))


def svg(figure: Figure) -> str:
    """The drawing without declarations and metadata, whose links point to other hosts."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
