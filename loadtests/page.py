"""The report as one HTML page that needs nothing else: no script, no font, no picture from another host."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from loadtests.plots import COLORS, figures
from loadtests.tables import Row, bundle_rows, count, count_rows, facts, level_rows, size
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
    a, b = (escape(bundle["name"]) for bundle in report["bundles"])
    drawn = figures(report)
    parts = [
        f"<header><h1><span class=a>{a}</span> <small>and</small> <span class=b>{b}</span></h1>"
        f"<p>Load test of {escape(report['created'])}, robal {escape(str(report['machine']['versions']['robal']))}</p>"
        "</header>",
        _verdict(report),
        "<section><h2>What each takes</h2>"
        + _bars(report)
        + _table(("", a, b, f"{b} / {a}"), bundle_rows(report))
        + "</section>",
        _figure(drawn, "ratios"),
    ]
    for level in report["levels"]:
        users = "1 user" if level["users"] == 1 else f"{level['users']} users"
        about = "the latency of a lone request" if level["users"] == 1 else "a server that is kept busy"
        parts.append(
            f"<section><h2>With {users}</h2><p>Each user sends the next text when the last one is answered: {about}. "
            "In brackets: 95 % confidence intervals.</p>"
            + (_table(("", a, b, f"{b} / {a}", ""), level_rows(level), "level") if level["ratios"] is not None else "")
            + _table(("", a, b), count_rows(level), "minor")
            + "</section>"
        )
    parts += [_figure(drawn, name) for name in CAPTIONS if name != "ratios"]
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(report))
    parts.append(f"<section><h2>Method and machine</h2><dl>{pairs}</dl></section>")
    title = f"{a} and {b}: load test"
    style = f":root {{ --a: {COLORS[0]}; --b: {COLORS[1]}; }}\n" + STYLE_SHEET.read_text()
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


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
    """The handful of numbers that most readers came for; none when they must not be believed."""
    if not report["verdict"]["valid"]:
        return ""
    a, b = report["bundles"]
    memory = [bundle["memory"]["after_load_rss_bytes"] for bundle in (a, b)]
    tiles = [
        (b["size_bytes"] / a["size_bytes"], "smaller", "larger", "on disk"),
        (memory[1] / memory[0], "less", "more", "memory"),
    ]
    html = []
    for ratio, less, more, what in tiles:
        value = "same" if same(ratio) else fold(ratio)
        word = "" if same(ratio) else less if ratio < 1 else more
        html.append(f"<div><b>{value}</b><span>{word} {what}</span></div>")
    for level in report["levels"]:
        users = "1 user" if level["users"] == 1 else f"{level['users']} users"
        median = level["ratios"]["p50"]
        html.append(
            f"<div><b>{median['value']:.2f}x</b><span>median latency, {users}</span>{_tag(median['verdict'])}</div>"
        )
    return f"<div class=tiles>{''.join(html)}</div>"


def _tag(verdict: str) -> str:
    return f'<span class="tag {verdict.split()[0]}">{verdict}</span>'


def _bars(report: Mapping[str, Any]) -> str:
    a, b = report["bundles"]
    groups = [
        ("Size on disk", [bundle["size_bytes"] for bundle in (a, b)], size),
        ("Memory of the server, after load", [item["memory"]["after_load_rss_bytes"] for item in (a, b)], size),
        ("Parameters stored", [bundle["unique_parameters"] for bundle in (a, b)], count),
    ]
    html = []
    for title, values, form in groups:
        bars = "".join(
            f"<div class=bar><div><span>{escape(bundle['name'])}</span><b>{form(value)}</b></div>"
            f'<i class={letter} style="width:{100 * value / max(values):.1f}%"></i></div>'
            for letter, bundle, value in zip("ab", (a, b), values, strict=True)
        )
        html.append(f"<div><h3>{title}</h3>{bars}</div>")
    return f"<div class=bars>{''.join(html)}</div>"


def _table(head: tuple[str, ...], rows: Iterable[Row], kind: str = "") -> str:
    """``head`` is already escaped; the fifth column shows verdicts as tags."""
    body = []
    for row in rows:
        cells = [_cell(text) for text in (row.label, row.a, row.b, row.ratio)[: len(head)]]
        if len(head) == 5:
            cells.append(_tag(row.verdict) if row.verdict else "")
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<div class=scroll><table class="{kind}"><tr>{heads}</tr>{"".join(body)}</table></div>'


def _cell(text: str) -> str:
    """Escaped, with the bracketed part small."""
    value, bracket, rest = escape(text).partition(" (")
    return f"{value} <small>({rest}</small>" if bracket else value


def _figure(drawn: Mapping[str, str], name: str) -> str:
    if name not in drawn:
        return ""
    title, caption = CAPTIONS[name]
    # An image of its own keeps the ids inside one drawing from meeting those of another.
    source = base64.b64encode(drawn[name].encode()).decode()
    return (
        f"<section><h2>{title}</h2><p>{caption}</p>"
        f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{source}"></figure></section>'
    )
