"""The report as Markdown, for a repository or a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadtests.tables import Row, count_rows, facts, heads, level_rows, subject_rows


def render_markdown(report: Mapping[str, Any]) -> str:
    """The whole report as text; the verdict first."""
    names = [plain(subject["name"]) for subject in report["subjects"]]
    columns = ["", *map(plain, heads(report))]
    verdict = report["verdict"]
    lines = [f"# Load test: {listed(names)}", "", f"**{plain(verdict['sentence'])}**", ""]
    lines += [f"- Note: {plain(note)}" for note in verdict["notes"]] + [""] * bool(verdict["notes"])
    if rows := subject_rows(report):
        lines += _table(columns, rows)
    for level in report["levels"]:
        lines += ["", f"## With {level['title']}", ""]
        if rows := level_rows(level):
            lines += [*_table(columns, rows), ""]
        lines += _table(columns[: 1 + len(names)], count_rows(level))
    lines += [
        "",
        "Values in brackets are 95 % confidence intervals. "
        f"Ratios within {verdict['margin']:.0%} of 1, interval included, are called equivalent.",
        "",
        "## Method and machine",
        "",
        *(f"- {plain(name)}: {_code(value)}" for name, value in facts(report)),
        "",
    ]
    return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table whose first column is words and whose others are numbers."""
    lines = ["| " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (len(columns) - 1)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def _table(columns: Sequence[str], rows: Iterable[Row]) -> list[str]:
    return markdown_table(columns, [(row.label, *row.values, *_judged(row))[: len(columns)] for row in rows])


def _judged(row: Row) -> list[str]:
    if not row.verdicts:
        return list(row.ratios)
    return [f"{ratio} {verdict}" for ratio, verdict in zip(row.ratios, row.verdicts, strict=True)]


def _code(text: str) -> str:
    """Verbatim; fenced by more backticks than the text has in a row."""
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def plain(text: str) -> str:
    """Names are the user's: they must not become markup or end a table cell."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in text)
