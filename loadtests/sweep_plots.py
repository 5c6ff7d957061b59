"""Figures of a regime map: where a service is faster, and how well counting predicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from loadtests.plots import COLORS, INK, MUTED, drawing, legend, svg

WIDEST = 2.0
"""Ratios beyond this factor have its colour."""


def sweep_figures(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Title, caption and SVG of each figure."""
    names = [subject["name"] for subject in report["subjects"]]
    with drawing():
        found = [
            (
                f"{names[other]} beside {names[0]}",
                "How many times as fast a call is: blue faster, orange slower, white the same. A star: the whole "
                "95 % confidence interval lies on one side of 1 and beyond the margin.",
                svg(_heat(report, other)),
            )
            for other in range(1, len(names))
        ]
        if all(each.get("roofline") for each in report["maps"]):
            found.append(
                (
                    "Measured against predicted",
                    "Each point is one shape of a call. On the line, counting operations and bytes predicts it.",
                    svg(_roofline(report, names)),
                )
            )
    return found


def _heat(report: Mapping[str, Any], other: int) -> Figure:
    maps = report["maps"]
    lengths = sorted({cell["length"] for cell in maps[0]["cells"]})
    batches = sorted({cell["texts"] for cell in maps[0]["cells"]})
    columns = min(len(maps), 2)
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(8.4, rows * (0.9 + 0.5 * len(batches))), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    norm = TwoSlopeNorm(0.0, -np.log(WIDEST), np.log(WIDEST))
    colors = matplotlib.colors.LinearSegmentedColormap.from_list("faster", [COLORS[1], "#ffffff", COLORS[0]])
    margin = report["verdict"]["margin"]
    for panel, found in zip(panels, maps, strict=False):
        grid = np.full((len(batches), len(lengths)), np.nan)
        for cell in found["cells"]:
            ratio = cell["ratios"][other]
            row, column = batches.index(cell["texts"]), lengths.index(cell["length"])
            grid[row, column] = np.clip(-np.log(ratio["value"]), -np.log(WIDEST), np.log(WIDEST))
            sure = ratio["low"] is not None and (ratio["high"] < 1 / (1 + margin) or ratio["low"] > 1 + margin)
            dark = abs(grid[row, column]) > 0.45
            words = f"{1 / ratio['value']:.2f}{'*' if sure else ''}"
            panel.text(column, row, words, ha="center", va="center", color="white" if dark else INK, fontsize=9)
        panel.imshow(grid, cmap=colors, norm=norm, aspect="auto")
        panel.grid(visible=False)
        panel.set_xticks(range(len(lengths)), [str(length) for length in lengths])
        panel.set_yticks(range(len(batches)), [str(batch) for batch in batches])
        panel.set_xlabel("tokens of a text")
        panel.set_ylabel("texts in a call")
        threads = found["threads"]
        panel.set_title(f"{found['precision']}, {threads} thread{'s' if threads > 1 else ''}")
    return figure


def _roofline(report: Mapping[str, Any], names: Sequence[str]) -> Figure:
    maps = report["maps"]
    figure = Figure(figsize=(8.4, 0.6 + 3.4 * -(-len(maps) // 2)), layout="constrained")
    panels = list(figure.subplots(-(-len(maps) // 2), min(len(maps), 2), squeeze=False).flat)
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    for panel, found in zip(panels, maps, strict=False):
        for number in range(len(names)):
            x = [times[number] for times in found["roofline"]["engine_ms"]]
            y = [cell["engine_ms"][number] for cell in found["cells"]]
            panel.plot(x, y, ls="", marker="o", ms=5, color=COLORS[number], alpha=0.85)
        ends = [
            min(min(times) for times in found["roofline"]["engine_ms"]),
            max(cell["engine_ms"][0] for cell in found["cells"]),
        ]
        panel.plot(ends, ends, color=MUTED, lw=1)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("predicted, ms")
        panel.set_ylabel("measured in the engine, ms")
        threads = found["threads"]
        panel.set_title(f"{found['precision']}, {threads} thread{'s' if threads > 1 else ''}")
    legend(figure, names)
    return figure
