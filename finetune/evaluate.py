"""A labelled file and a model to figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from finetune.scorer import Scorer, score_texts
from labelled.labels import LabelSet, unnamed
from labelled.metrics import evaluate_logits
from labelled.reader import DataOptions, read_dataset
from labelled.rows import encode_rows, targets_of


def evaluate_file(
    scorer: Scorer,
    data: Path,
    options: DataOptions,
    *,
    renames: Mapping[str, str],
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, Any]:
    """Figures of a model on a labelled file, with what was measured.

    Args:
        scorer: the model.
        data: the file; every label must be a class of the model.
        options: how it is read.
        renames: class names for labels of the file; if empty, those that the model was trained with. A model whose
            classes have no names but LABEL_0, LABEL_1, ... knows them as 0, 1, ... too.
        advance: called with the number of rows that were scored since the last call.

    Raises:
        DataError: the file or its labels do not fit.
    """
    dataset = read_dataset(data, options, scorer.problem_type)
    labels = LabelSet(scorer.labels, renames or scorer.renames or unnamed(scorer.labels))
    labels.check(dataset, f"the model {scorer.name}")
    texts = encode_rows(scorer.text_encoder, dataset.rows)
    targets = targets_of(dataset.rows, labels, scorer.problem_type)
    logits = score_texts(scorer, texts, advance=advance)
    figures = evaluate_logits(logits, targets, scorer.labels, scorer.problem_type)
    truncated = sum(text.truncated for text in texts)
    return {"model": scorer.name, "data": dataset.fingerprint(), "truncated_rows": truncated, **figures}
