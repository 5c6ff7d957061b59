"""Labels for a file of texts, written as they come and visible only when complete."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from contract.storage import open_atomic
from finetune.scorer import Scorer, score_texts
from labelled.reader import DataOptions, Row, RowReader
from labelled.rows import encode_rows

WINDOW_ROWS = 4096
"""Rows in memory at a time; also the rows among which texts are batched by length."""
SEPARATOR = "|"
"""Between the labels of one text in CSV."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a prediction run did."""

    rows: int
    skipped: int
    truncated: int


def count_rows(data: Path, options: DataOptions) -> int:
    """Usable rows of a file; reads it all, so that a bad row is found before the model runs.

    Raises:
        DataError: see ``RowReader``.
    """
    return sum(1 for _ in RowReader(data, options, None))


def write_predictions(
    scorer: Scorer,
    data: Path,
    options: DataOptions,
    out: Path,
    *,
    all_scores: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> Written:
    """Label every usable row, in order, in bounded memory.

    Args:
        scorer: the model.
        data: the texts.
        options: how they are read.
        out: a ``.csv`` or ``.jsonl`` file; appears, or is replaced, when everything is done.
        all_scores: write the score of every class, not only of the best.
        advance: called with the number of texts that were labelled since the last call.
    """
    reader = RowReader(data, options, None)
    rows = truncated = 0
    names = list(scorer.labels) if all_scores or scorer.problem_type == "multi_label_classification" else []
    encode = _csv_lines if out.suffix.lower() == ".csv" else _json_lines
    with open_atomic(out) as handle:
        stream = iter(reader)
        while window := list(islice(stream, WINDOW_ROWS)):
            texts = encode_rows(scorer.text_encoder, window)
            logits = score_texts(scorer, texts, advance=advance)
            scores = scorer.calibration.scores(logits, scorer.problem_type)
            answers = (_answer(scorer, row, row_scores, names) for row, row_scores in zip(window, scores, strict=True))
            handle.write("".join(encode(answers, header=rows == 0)).encode())
            rows += len(window)
            truncated += sum(text.truncated for text in texts)
    return Written(rows=rows, skipped=reader.problems.total, truncated=truncated)


def _answer(scorer: Scorer, row: Row, scores: np.ndarray, names: list[str]) -> dict[str, Any]:
    """One line of output. ``row`` is the row's number in the data file, because bad rows may have been left out."""
    answer: dict[str, Any] = {"row": row.row}
    answer |= {"text": row.text} if isinstance(row.text, str) else {"text": row.text[0], "text_pair": row.text[1]}
    match scorer.problem_type:
        case "single_label_classification":
            best = int(scores.argmax())
            answer |= {"label": scorer.labels[best], "score": _short(scores[best])}
        case "multi_label_classification":
            given = zip(scorer.labels, scores >= scorer.calibration.limits(scorer.labels), strict=True)
            answer["labels"] = [label for label, is_given in given if is_given]
        case "regression":
            answer["score"] = _short(scores[0])
    if names:
        answer["scores"] = {name: _short(score) for name, score in zip(names, scores, strict=True)}
    return answer


def _short(score: np.floating) -> float:
    """Six decimals: what float32 holds of a probability."""
    return round(float(score), 6)


def _json_lines(answers: Iterable[dict[str, Any]], *, header: bool) -> Iterator[str]:
    for answer in answers:
        yield json.dumps(answer, ensure_ascii=False) + "\n"


def _csv_lines(answers: Iterable[dict[str, Any]], *, header: bool) -> Iterator[str]:
    for answer in answers:
        flat = {name: value for name, value in answer.items() if name != "scores"}
        flat |= {f"score_{name}": score for name, score in answer.get("scores", {}).items()}
        if "labels" in flat:
            flat["labels"] = SEPARATOR.join(flat["labels"])
        text = io.StringIO()
        writer = csv.DictWriter(text, list(flat), lineterminator="\n")
        if header:
            writer.writeheader()
            header = False
        writer.writerow(flat)
        yield text.getvalue()
