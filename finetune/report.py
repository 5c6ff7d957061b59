"""Figures as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

MOST_CONFUSION_CLASSES = 15
"""Wider confusion matrices fit no terminal; they are in the JSON."""
SUMMARY = ("accuracy", "macro_f1", "micro_f1", "pearson", "spearman", "mse", "loss")


def print_figures(figures: dict[str, Any], labels: Sequence[str], title: str, screen: Console) -> None:
    """The summary line, the table of classes and, for few classes, the confusion matrix."""
    ends = {name: f" ({low:.4f} to {high:.4f})" for name, (low, high) in figures.get("intervals_95", {}).items()}
    shown = [f"{name} {figures[name]:.4f}{ends.get(name, '')}" for name in SUMMARY if name in figures]
    screen.print(escape("  ".join([title, f"{figures['rows']} rows", *shown])), soft_wrap=True)
    if "per_class" not in figures:
        return
    table = Table("class")
    for name in ("precision", "recall", "f1", "rows"):
        table.add_column(name, justify="right")
    for label, row in figures["per_class"].items():
        values = (f"{row[name]:.4f}" for name in ("precision", "recall", "f1"))
        table.add_row(escape(label), *values, str(row["support"]))
    screen.print(table)
    if "confusion" in figures and len(labels) <= MOST_CONFUSION_CLASSES:
        matrix = Table("truth \\ predicted", *(escape(label) for label in labels), title="confusion")
        for label, counts in zip(labels, figures["confusion"], strict=True):
            matrix.add_row(escape(label), *map(str, counts))
        screen.print(matrix)
