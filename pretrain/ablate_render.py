"""The report as Markdown, as one HTML file that needs nothing else, and as JSON."""

from __future__ import annotations

import html
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from contract.storage import write_atomic, write_json
from pretrain.ablate_plots import figures
from pretrain.ablate_report import Column, Report, Row, Table, as_json, spread

Cells = list[str]

STATEMENT = (
    "**The scale differs.** These runs train mini shapes (hidden {hidden}, {layers} layers where depth is not varied) "
    "on {tokens:,} tokens each ({updates:,} updates of {batch} sequences of {window}), drawn from a corpus of "
    "{corpus_tokens:,} tokens with a vocabulary of {vocabulary:,}, and are scored by fine-tuning on `{task}` "
    "({metric}, development rows). The papers train models of 12 million to 355 million parameters on 3 to 30 billion "
    "words for 31,000 to 1,000,000 updates and score them on GLUE, SQuAD and RACE. Published numbers stand beside ours "
    "so that the *order* of rows can be compared, never their size. An effect that is missing here may need the scale; "
    "one that is present may not survive it."
)


def write_report(report: Report, folder: Path) -> None:
    """Write ``report.md`` with its figures beside it, ``report.html`` and ``report.json``."""
    drawn = figures(report)
    for name, svg in drawn.items():
        write_atomic(folder / "report" / f"{name}.svg", svg)
    write_atomic(folder / "report.md", markdown(report, set(drawn)))
    write_atomic(folder / "report.html", page(report, drawn))
    write_json(folder / "report.json", as_json(report))


def markdown(report: Report, drawn: set[str]) -> str:
    """The report as Markdown; figures are links to ``report/NAME.svg``."""
    lines = [f"# {report.title}", "", STATEMENT.format(**report.scale), "", _made(report), ""]
    for table in report.tables:
        experiment = table.experiment
        lines += [f"## {experiment.title}", "", f"{experiment.about} ({experiment.source}.)", ""]
        lines += [*_markdown_table(*cells(table)), "", f"**Here:** {table.finding}", ""]
        if experiment.name in drawn:
            lines += [f"![{experiment.title}](report/{experiment.name}.svg)", ""]
    if report.counts:
        lines += ["## Exact parameters at the paper's size", "", COUNTS_ABOUT, ""]
        lines += [*_markdown_table(*count_cells(report)), ""]
    return "\n".join(lines).rstrip() + "\n"


COUNTS_ABOUT = (
    "ALBERT base with 30,000 words, encoder and pooler counted, without a map where E equals the hidden size. The "
    "paper rounds some up and some down."
)


def _made(report: Report) -> str:
    missing = f" {report.missing} table cells have no run yet." if report.missing else ""
    return (
        "{runs} runs over {seeds} seeds, {hours:g} hours in all; robal {robal_version}, store {store}, {created}. "
        "Values are means, with the standard deviation over seeds.{missing}"
    ).format(**report.scale, missing=missing)


def cells(table: Table) -> tuple[Cells, list[Cells]]:
    """Head and rows of an experiment's table, as text."""
    published = list(dict.fromkeys(name for row in table.rows for name in row.published))
    head = ["", *(column.name for column in table.columns), *(f"published: {name}" for name in published)]
    rows = [
        [
            row.name,
            *(_value(row, column) for column in table.columns),
            *(str(row.published.get(name, "")) for name in published),
        ]
        for row in table.rows
    ]
    return head, rows


def count_cells(report: Report) -> tuple[Cells, list[Cells]]:
    """Head and rows of the table of exact parameters."""
    rows = [[f"E={row['E']}", row["sharing"], f"{row['exact']:,}", str(row["published"])] for row in report.counts]
    return ["", "shared", "exact", "published"], rows


def _value(row: Row, column: Column) -> str:
    values = row.values[column.name]
    if not values:
        return ""
    text = f"{statistics.fmean(values):,.{column.digits}f}"
    return f"{text} ± {spread(values):.{column.digits}f}" if len(values) > 1 and column.digits else text


def _markdown_table(head: Cells, rows: Sequence[Cells]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: 0.92rem; display: block; overflow-x: auto; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #e4e8ec; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.published { color: #66737f; } .scale { background: #fdf6e3; padding: 0.8rem 1rem; border-left: 4px solid #e07a2f; }
svg { max-width: 100%; height: auto; }
"""


def page(report: Report, drawn: dict[str, str]) -> str:
    """The report as one HTML file."""
    body = [
        f"<h1>{html.escape(report.title)}</h1>",
        f'<p class="scale">{_inline(STATEMENT.format(**report.scale))}</p>',
        f"<p>{_inline(_made(report))}</p>",
    ]
    for table in report.tables:
        experiment = table.experiment
        body += [
            f'<h2 id="{experiment.name}">{html.escape(experiment.title)}</h2>',
            f"<p>{_inline(experiment.about)} ({html.escape(experiment.source)}.)</p>",
            _html_table(*cells(table)),
            f"<p><b>Here:</b> {html.escape(table.finding)}</p>",
            drawn.get(experiment.name, ""),
        ]
    if report.counts:
        body += ["<h2>Exact parameters at the paper's size</h2>", f"<p>{COUNTS_ABOUT}</p>"]
        body.append(_html_table(*count_cells(report)))
    title = f"<title>{html.escape(report.title)}</title>"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{title}\n'
        f"<style>{CSS}</style>\n</head>\n<body>\n" + "\n".join(part for part in body if part) + "\n</body>\n</html>\n"
    )


def _html_table(head: Cells, rows: Sequence[Cells]) -> str:
    def row(tag: str, texts: Cells) -> str:
        marks = ['class="published"' if name.startswith("published") else "" for name in head]
        parts = zip(texts, marks, strict=True)
        return "<tr>" + "".join(f"<{tag} {mark}>{html.escape(text)}</{tag}>" for text, mark in parts) + "</tr>"

    return "<table>" + row("th", head) + "".join(row("td", texts) for texts in rows) + "</table>"


def _inline(text: str) -> str:
    """The two marks that our sentences use."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", re.sub(r"`(.+?)`", r"<code>\1</code>", text))
