"""The report as one HTML page that needs nothing else: no script, no font, no picture from another host."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loadtests.markdown import listed
from loadtests.plots import COLORS, figures
from loadtests.tables import Row, count, count_rows, facts, heads, level_rows, number, size, subject_rows
from loadtests.verdict import fold, same

CAPTIONS = {
    "ratios": (
        "Is there a difference?",
        "Each line is a ratio with its 95 % confidence interval. Wholly inside the shaded band: equivalent. "
        "Left of 1, latency is lower; for throughput, right of 1 is better.",
    ),
    "distributions": ("How long do requests take?", "Share of the requests that were answered within a time."),
    "lengths": (
        "Does it depend on the length?",
        "The texts in four equal parts by their number of characters, which is the same for both.",
    ),
    "stages": (
        "Where does the time go?",
        "As the server reports it in its answers; what is left of the measured latency is outside the server: "
        "the connection and the generator.",
    ),
    "rounds": (
        "Did the machine hold still?",
        "Every visit started a fresh server. A slope or a step that both share is the machine; "
        "the order A B B A keeps it out of the ratios.",
    ),
}

STYLE_SHEET = Path(__file__).with_name("page.css")


def render_page(report: dict[str, Any]) -> str:
    """The whole report as HTML."""
    names = [escape(subject["name"]) for subject in report["subjects"]]
    columns = ["", *map(escape, heads(report))]
    title = listed(names)
    named = " <small>and</small> ".join(
        f'<span style="color: {color}">{name}</span>' for name, color in zip(names, COLORS, strict=False)
    )
    parts = [
        f"<header><h1>{named}</h1>"
        f"<p>Load test of {escape(report['created'])}, robal {escape(str(report['machine']['versions']['robal']))}</p>"
        "</header>",
        _verdict(report),
    ]
    if rows := subject_rows(report):
        bars = _bars(report)
        parts.append(f"<section><h2>What each takes</h2>{bars}{_table(columns, rows)}</section>")
    drawn = figures(report)
    parts.append(_figure(drawn, "ratios"))
    for level in report["levels"]:
        rows = level_rows(level)
        parts.append(
            f"<section><h2>With {level['title']}</h2><p>{_about(level)} In brackets: 95 % confidence intervals.</p>"
            + (_table(columns, rows, "level") if rows else "")
            + _table(columns[: 1 + len(names)], count_rows(level), "minor")
            + "</section>"
        )
    parts += [_figure(drawn, name) for name in CAPTIONS if name != "ratios"]
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(report))
    parts.append(f"<section><h2>Method and machine</h2><dl>{pairs}</dl></section>")
    return html_page(f"{title}: load test", "".join(parts))


def html_page(title: str, body: str) -> str:
    """A page around sections; the title is already escaped."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE_SHEET.read_text()}</style></head><body><main>{body}</main></body></html>\n"
    )


def _about(level: Mapping[str, Any]) -> str:
    if level["loop"] == "open":
        return "Requests arrive whether or not earlier ones are answered; a latency counts from when it was due."
    about = "the latency of a lone request" if level["users"] == 1 else "a server that is kept busy"
    return f"Each user sends the next text when the last one is answered: {about}."


def _verdict(report: Mapping[str, Any]) -> str:
    verdict = report["verdict"]
    lead, *rest = verdict["clauses"]
    kind = "verdict" if verdict["valid"] else "verdict invalid"
    items = "".join(f"<li>{escape(clause)}</li>" for clause in rest)
    notes = "".join(f"<li>{escape(note)}</li>" for note in verdict["notes"])
    return (
        f'<section class="{kind}"><p class=lead>{escape(lead)}.</p>{_tiles(report)}<ul>{items}</ul>'
        + (f"<ul class=notes>{notes}</ul>" if notes else "")
        + "</section>"
    )


def _tiles(report: Mapping[str, Any]) -> str:
    """The handful of numbers that most readers came for, of the first rival; none when they must not be believed."""
    if not report["verdict"]["valid"]:
        return ""
    html = []
    if len(report["subjects"]) == 1:
        for level in report["levels"]:
            for name in ("p50", "p99"):
                value = number(level["subjects"][0]["latency_ms"][name]["value"])
                html.append(f"<div><b>{value} ms</b><span>{name} latency, {level['title']}</span></div>")
        return f"<div class=tiles>{''.join(html)}</div>"
    sizes = [subject["size_bytes"] for subject in report["subjects"][:2]]
    memory = [subject["memory"] and subject["memory"]["after_load_rss_bytes"] for subject in report["subjects"][:2]]
    for (a, b), less, more, what in ((sizes, "smaller", "larger", "on disk"), (memory, "less", "more", "memory")):
        if a is not None and b is not None:
            value = "same" if same(b / a) else fold(b / a)
            word = "" if same(b / a) else less if b < a else more
            html.append(f"<div><b>{value}</b><span>{word} {what}</span></div>")
    for level in report["levels"]:
        if level["ratios"][1] is not None:
            median = level["ratios"][1]["p50"]
            html.append(
                f"<div><b>{median['value']:.2f}x</b><span>median latency, {level['title']}</span>"
                f"{_tag(median['verdict'])}</div>"
            )
    return f"<div class=tiles>{''.join(html)}</div>"


def _tag(verdict: str) -> str:
    return f'<span class="tag {verdict.split()[0]}">{verdict}</span>'


def _bars(report: Mapping[str, Any]) -> str:
    subjects = report["subjects"]
    groups = [
        ("Size on disk", [subject["size_bytes"] for subject in subjects], size),
        (
            "Memory of the server, after load",
            [subject["memory"] and subject["memory"]["after_load_rss_bytes"] for subject in subjects],
            size,
        ),
        ("Parameters stored", [subject["unique_parameters"] for subject in subjects], count),
    ]
    html = []
    for title, values, form in groups:
        if any(value is None for value in values):
            continue
        bars = "".join(
            f"<div class=bar><div><span>{escape(subject['name'])}</span><b>{form(value)}</b></div>"
            f'<i style="background: {color}; width:{100 * value / max(values):.1f}%"></i></div>'
            for color, subject, value in zip(COLORS, subjects, values, strict=False)
        )
        html.append(f"<div><h3>{title}</h3>{bars}</div>")
    return f"<div class=bars>{''.join(html)}</div>"


def _table(columns: Sequence[str], rows: Iterable[Row], kind: str = "") -> str:
    """``columns`` are already escaped; ratios carry their verdicts as tags."""
    body = []
    for row in rows:
        cells = [_cell(text) for text in (row.label, *row.values)]
        verdicts = row.verdicts or [""] * len(row.ratios)
        cells += [
            _cell(ratio) + (f" {_tag(verdict)}" if verdict else "")
            for ratio, verdict in zip(row.ratios, verdicts, strict=True)
        ]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells[: len(columns)]) + "</tr>")
    head = "".join(f"<th>{cell}</th>" for cell in columns)
    return f'<div class=scroll><table class="{kind}"><tr>{head}</tr>{"".join(body)}</table></div>'


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain words, which are escaped here."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _cell(text: str) -> str:
    """Escaped, with the bracketed part small."""
    value, bracket, rest = escape(text).partition(" (")
    return f"{value} <small>({rest}</small>" if bracket else value


def html_figure(title: str, caption: str, svg: str) -> str:
    """A section with a drawing. An image of its own keeps the ids inside one drawing from meeting those of another."""
    source = base64.b64encode(svg.encode()).decode()
    return (
        f"<section><h2>{title}</h2><p>{caption}</p>"
        f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{source}"></figure></section>'
    )


def _figure(drawn: Mapping[str, str], name: str) -> str:
    return html_figure(*CAPTIONS[name], drawn[name]) if name in drawn else ""
