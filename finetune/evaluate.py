"""A labelled file and a model to figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from contract.scores import Array
from finetune.intervals import bootstrap, figure_of_rows
from finetune.scorer import Scorer, score_texts
from finetune.trained_on import refuse_training_data
from labelled.labels import LabelSet, unnamed
from labelled.metrics import evaluate_logits
from labelled.reader import DataOptions, Dataset, read_dataset
from labelled.rows import EncodedRows, encode_rows, targets_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A model's answers to a labelled file."""

    figures: dict[str, Any]
    """Plain values, with what was measured."""
    logits: Array
    """(rows, labels)."""
    targets: npt.NDArray[Any]
    """See ``targets_of``."""
    dataset: Dataset


def score_file(
    scorer: Scorer,
    data: Path,
    options: DataOptions,
    *,
    renames: Mapping[str, str],
    advance: Callable[[int], None] = lambda rows: None,
    training_data: bool = True,
) -> Scored:
    """Answers and figures of a model on a labelled file.

    Args:
        scorer: the model.
        data: the file; every label must be a class of the model.
        options: how it is read.
        renames: class names for labels of the file; if empty, those that the model was trained with. A model whose
            classes have no names but LABEL_0, LABEL_1, ... knows them as 0, 1, ... too.
        advance: called with the number of rows that were scored since the last call.
        training_data: whether the file may be the one that the model was trained on.

    Raises:
        DataError: the file or its labels do not fit.
    """
    dataset = read_dataset(data, options, scorer.problem_type)
    if not training_data:
        refuse_training_data(scorer, dataset)
    labels = LabelSet(scorer.labels, renames or scorer.renames or unnamed(scorer.labels))
    labels.check(dataset, f"the model {scorer.name}")
    texts = encode_rows(scorer.text_encoder, dataset.rows)
    targets = targets_of(dataset.rows, labels, scorer.problem_type)
    logits = score_texts(scorer, texts, advance=advance)
    figures = evaluate_logits(logits, targets, scorer.labels, scorer.problem_type)
    encoded = EncodedRows(texts, targets)
    intervals = bootstrap(figure_of_rows(logits, targets, scorer.problem_type), len(targets))
    figures |= {"intervals_95": {name: list(ends) for name, ends in intervals.items()}}
    cut = {"truncated_rows": encoded.truncated, "cut_tokens": encoded.cut_tokens}
    figures = {"model": scorer.name, "data": dataset.fingerprint(), **cut, **figures}
    return Scored(figures=figures, logits=logits, targets=targets, dataset=dataset)


def evaluate_file(scorer: Scorer, data: Path, options: DataOptions, *, renames: Mapping[str, str]) -> dict[str, Any]:
    """The figures of ``score_file``."""
    return score_file(scorer, data, options, renames=renames).figures
