"""One HTML file that says how good a model is and where it fails; needs no network and no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from finetune.events import Progress
from finetune.evidence import Evidence

MOST_CONFUSION_CLASSES = 30
MOST_CONFUSIONS = 20
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430}
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .6rem;border-bottom:1px solid #dde3ea;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}h2{margin-top:2rem}svg{background:#fafbfc}
.note{color:#5b6675}code{background:#f1f4f7;padding:0 .2rem}"""
COLOURS = ("#2563c9", "#c2571a", "#2c8a4b")


def render(record: Mapping[str, Any], evidence: Evidence, progress: Progress) -> str:
    """The page.

    Args:
        record: ``robal.json`` of the checkpoint.
        evidence: from its dev rows.
        progress: of the run, for the curves.
    """
    figures = record["metrics"]["dev"]
    parts = [_summary(record, figures, evidence)]
    if "per_class" in figures:
        rows = [
            [name, row["precision"], row["recall"], row["f1"], row["support"]]
            for name, row in figures["per_class"].items()
        ]
        parts.append(_section("Classes", _table(["class", "precision", "recall", "F1", "rows"], rows)))
    if "confusion" in figures:
        parts.append(_confusion(list(figures["per_class"]), figures["confusion"]))
    if evidence.calibration_errors:
        parts.append(_calibration(evidence))
    looks = progress.evaluations
    curves = {"dev loss": [(look.step, look.figures["loss"]) for look in looks]}
    curves["training loss"] = [(look.step, look.train_loss) for look in looks if look.train_loss is not None]
    chosen = record["metrics"]["chosen_by"]
    learned = _chart(curves, "step", "loss") + _chart(
        {chosen: [(look.step, look.figures[chosen]) for look in looks]}, "step", chosen
    )
    parts.append(_section("Learning curves", learned))
    names = list(evidence.lengths[0][2])
    rows = [[tokens, count, *(values[name] for name in names)] for tokens, count, values in evidence.lengths]
    parts.append(_section("By length", _table(["tokens", "rows", *names], rows)))
    if evidence.mistakes:
        rows = [[m.line, m.label, m.answer, m.score, m.text[:300]] for m in evidence.mistakes]
        note = "Surest first. Each is a hard case or a wrong label in the file: worth a look before more training."
        parts.append(
            _section("Most confident mistakes", _table(["row", "label", "answer", "score", "text"], rows), note)
        )
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>robal report</title>'
        f"<style>{STYLE}</style>\n<body>\n{body}\n</body></html>\n"
    )


def _summary(record: Mapping[str, Any], figures: Mapping[str, Any], evidence: Evidence) -> str:
    rows = []
    for name in ("accuracy", "macro_f1", "micro_f1", "spearman", "pearson", "mse", "loss"):
        if name in figures:
            ends = evidence.intervals.get(name)
            rows.append([name, figures[name], "" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"])
    trained = record["training"]
    note = (
        f"{figures['rows']} dev rows; trained on {record['data']['train']['rows']} rows of "
        f"{record['data']['train']['file']}, from {trained['model']}, step {record['metrics']['step']} of "
        f"{trained['steps']}. "
        "The best checkpoint was chosen on these rows, so that new texts give slightly lower figures."
    )
    return _section("How good is it?", _table(["figure", "dev", "95 % interval (bootstrap)"], rows), note, level=1)


def _confusion(labels: Sequence[str], matrix: Sequence[Sequence[int]]) -> str:
    if len(labels) <= MOST_CONFUSION_CLASSES:
        rows = [[label, *counts] for label, counts in zip(labels, matrix, strict=True)]
        return _section("Confusion", _table(["label \\ answer", *labels], rows))
    pairs = [
        (count, labels[truth], labels[answer])
        for truth, counts in enumerate(matrix)
        for answer, count in enumerate(counts)
        if count and truth != answer
    ]
    rows = [[label, answer, count] for count, label, answer in sorted(pairs, reverse=True)[:MOST_CONFUSIONS]]
    return _section("Most frequent confusions", _table(["label", "answer", "rows"], rows))


def _calibration(evidence: Evidence) -> str:
    errors = evidence.calibration_errors
    assert errors, "only called with bins"
    curves = {
        name: [(part["confidence"], part["right"]) for part in bins]
        for name, bins in zip(("before", "after"), evidence.bins, strict=True)
    }
    note = (
        f"Temperature {evidence.calibration.temperature:g}: expected calibration error {errors[0]:.4f} before, "
        f"{errors[1]:.4f} after, on the rows that it was fitted on. On the diagonal, "
        "a score of 0.8 is right in 80 % of the cases."
    )
    body = _chart({"ideal": [(0.0, 0.0), (1.0, 1.0)], **curves}, "score", "share that is right")
    if evidence.calibration.thresholds:
        body += _table(
            ["label", "threshold"], [[name, limit] for name, limit in evidence.calibration.thresholds.items()]
        )
    return _section("Do the scores mean what they say?", body, note)


def _section(title: str, body: str, note: str = "", *, level: int = 2) -> str:
    shown = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<h{level}>{escape(title)}</h{level}>{shown}{body}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, float):
            return f'<td class="n">{value:.4f}</td>'
        return f'<td class="n">{value}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"

    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ["".join(map(cell, row)) for row in rows]
    return f"<table><tr>{titles}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _chart(curves: Mapping[str, Sequence[tuple[float, float]]], x_name: str, y_name: str) -> str:
    """Lines with dots in a square of 340 x 260, as SVG."""
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return ""
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points, strict=True))
    wide, tall = max(right - left, 1e-9), max(high - low, 1e-9)

    def at(x: float, y: float) -> str:
        return f"{50 + 270 * (x - left) / wide:.1f},{210 - 190 * (y - low) / tall:.1f}"

    lines = []
    for number, ((name, curve), colour) in enumerate(zip(curves.items(), COLOURS, strict=False)):
        drawn = [at(*point) for point in curve]
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(drawn)}"/>')
        for x, y in (point.split(",") for point in drawn):
            lines.append(f'<circle r="3" fill="{colour}" cx="{x}" cy="{y}"/>')
        lines.append(f'<text x="{60 + 100 * number}" y="14" fill="{colour}">{escape(name)}</text>')
    axes = (
        f'<text x="4" y="24">{high:.3g}</text><text x="4" y="212">{low:.3g}</text>'
        f'<text x="50" y="230">{left:.3g}</text>'
        f'<text x="300" y="230">{right:.3g}</text><text x="150" y="250">{escape(x_name)}</text>'
        f'<path d="M50 20V210H320" fill="none" stroke="#9aa5b1"/>'
    )
    return (
        f'<svg width="340" height="260" font-size="12" role="img" aria-label="{escape(y_name)} by {escape(x_name)}">'
        f"{axes}{''.join(lines)}</svg>"
    )
