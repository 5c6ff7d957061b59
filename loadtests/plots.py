"""The report's figures, as SVG text without a reference to anything outside of it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#2f6690", "#e07a2f")
"""A and B: blue and orange, which colour-blind readers can tell apart."""
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
    levels = [level for level in report["levels"] if level["ratios"] is not None]
    if not levels:
        return {}
    names = [bundle["name"] for bundle in report["bundles"]]
    with matplotlib.rc_context(STYLE):
        drawn = {
            "ratios": _ratios(levels, report["verdict"]["margin"], names),
            "distributions": _distributions(levels, names),
            "rounds": _rounds(levels, names, report["method"]["order"]),
        }
        if all(level["bands"] for level in levels):
            drawn["lengths"] = _lengths(levels, names)
        if all(measured["stages_ms"] for level in levels for measured in level["bundles"]):
            drawn["stages"] = _stages(levels, names)
        return {name: _svg(figure) for name, figure in drawn.items()}


def _ratios(levels: Sequence[dict[str, Any]], margin: float, names: Sequence[str]) -> Figure:
    """Each ratio with its interval, against 1 and the margin."""
    rows = [
        (f"{_users(level)}  {name}", level["ratios"][name])
        for level in levels
        for name in ("p50", "p95", "p99", "throughput")
    ]
    figure = Figure(figsize=(8.4, 0.9 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, lw=0, zorder=0)
    axes.axvline(1, color=MUTED, lw=1)
    for row, (_, ratio) in enumerate(rows):
        words = f"{ratio['value']:.2f}"
        if ratio["low"] is None:
            axes.plot(ratio["value"], row, marker="o", ms=6, mfc="white", mec=COLORS[1])
        else:
            axes.plot([ratio["low"], ratio["high"]], [row, row], color=COLORS[1], lw=2.2, solid_capstyle="round")
            axes.plot(ratio["value"], row, marker="o", ms=6, color=COLORS[1])
            words += f"  ({ratio['low']:.2f} to {ratio['high']:.2f})"
        axes.text(1.02, row, words, transform=axes.get_yaxis_transform(), va="center", color=INK)
    # At least the margin twice over, so that equivalent servers look equivalent; at most a factor of 2.
    ends = [value for _, ratio in rows for value in (ratio["low"], ratio["value"], ratio["high"]) if value is not None]
    low, high = min([*ends, 1 / (1 + 2 * margin)]), max([*ends, 1 + 2 * margin])
    axes.set_xlim(max(0.5, low * 0.98), min(2, high * 1.02))
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], color=INK)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{names[1]} / {names[0]}   (shaded: within {margin:.0%}; hollow: too few data for an interval)")
    return figure


def _distributions(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Share of requests answered within a time, one panel per number of users."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for color, measured in zip(COLORS, level["bundles"], strict=True):
            axes.plot(measured["percentiles_ms"], range(101), color=color, lw=2)
        # The slowest half percent would squeeze everything else to the left.
        axes.set_xlim(0, 1.1 * max(measured["percentiles_ms"][99] for measured in level["bundles"]))
        axes.set_ylim(0, 100)
        axes.set_title(_users(level))
        axes.set_xlabel("latency, ms")
    panels[0].set_ylabel("answered within, %")
    _legend(figure, names)
    return figure


def _lengths(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Median latency for each quarter of the texts."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for index, color in enumerate(COLORS):
            x = [band["tokens"][index] for band in level["bands"]]
            axes.plot(x, [band["p50_ms"][index] for band in level["bands"]], color=color, marker="o", lw=2)
        axes.set_ylim(0, 1.1 * max(max(band["p50_ms"]) for band in level["bands"]))
        axes.set_xlim(left=0)
        axes.set_title(_users(level))
        axes.set_xlabel("median tokens of the quarter")
    panels[0].set_ylabel("median latency, ms")
    _legend(figure, names)
    return figure


def _rounds(levels: Sequence[dict[str, Any]], names: Sequence[str], order: str) -> Figure:
    """Medians in the order they were measured: a drift of the machine would show as a slope."""
    figure, panels = _panels(levels)
    for axes, level in zip(panels, levels, strict=True):
        for letter, color, measured in zip("AB", COLORS, level["bundles"], strict=True):
            at = [visit + 1 for visit, own in enumerate(order) if own == letter]
            axes.plot(at, measured["p50_by_round_ms"], color=color, marker="o", lw=1, alpha=0.9)
        axes.set_ylim(0, 1.1 * max(max(measured["p50_by_round_ms"]) for measured in level["bundles"]))
        axes.set_xticks(range(1, len(order) + 1), list(order) if len(order) <= 24 else None)
        axes.grid(axis="x", visible=False)
        axes.set_title(_users(level))
        axes.set_xlabel("visit, in order of time")
    panels[0].set_ylabel("median latency, ms")
    _legend(figure, names)
    return figure


def _stages(levels: Sequence[dict[str, Any]], names: Sequence[str]) -> Figure:
    """Where the mean latency is spent."""
    figure = Figure(figsize=(8.4, 0.9 + 0.8 * len(levels)), layout="constrained")
    axes = figure.subplots()
    rows = [
        (f"{name}, {_users(level)}", m) for level in levels for name, m in zip(names, level["bundles"], strict=True)
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


def _legend(figure: Figure, names: Sequence[str]) -> None:
    handles = [matplotlib.lines.Line2D([], [], color=color, lw=3) for color in COLORS]
    figure.legend(handles, names, loc="outside upper left", ncols=2)


def _users(level: dict[str, Any]) -> str:
    return "1 user" if level["users"] == 1 else f"{level['users']} users"


def _svg(figure: Figure) -> str:
    """The drawing without declarations and metadata, whose links point to other hosts."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
