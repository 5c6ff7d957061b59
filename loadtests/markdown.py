"""The report as Markdown, for a repository or a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loadtests.tables import Row, bundle_rows, count_rows, facts, level_rows


def render_markdown(report: Mapping[str, Any]) -> str:
    """The whole report as text; the verdict first."""
    a, b = (_plain(bundle["name"]) for bundle in report["bundles"])
    verdict = report["verdict"]
    lines = [f"# Load test: {a} and {b}", "", f"**{_plain(verdict['sentence'])}**", ""]
    lines += [f"- Note: {_plain(note)}" for note in verdict["notes"]] + [""] * bool(verdict["notes"])
    lines += _table(("", a, b, f"{b} / {a}"), bundle_rows(report))
    for level in report["levels"]:
        users = "1 user" if level["users"] == 1 else f"{level['users']} users"
        lines += ["", f"## With {users}", ""]
        if level["ratios"] is not None:
            lines += [*_table(("", a, b, f"{b} / {a}", "verdict"), level_rows(level)), ""]
        lines += _table(("", a, b), count_rows(level))
    lines += [
        "",
        "Values in brackets are 95 % confidence intervals. "
        f"Ratios within {verdict['margin']:.0%} of 1, interval included, are called equivalent.",
        "",
        "## Method and machine",
        "",
        *(f"- {_plain(name)}: {_code(value)}" for name, value in facts(report)),
        "",
    ]
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Iterable[Row]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for row in rows:
        cells = (row.label, row.a, row.b, row.ratio, row.verdict)[: len(head)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _code(text: str) -> str:
    """Verbatim; fenced by more backticks than the text has in a row."""
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _plain(text: str) -> str:
    """Names are the user's: they must not become markup or end a table cell."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in text)
