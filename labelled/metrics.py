"""Logits and targets to figures: scikit-learn counts, this module says which figures and by which rule.

Macro averages run over the classes that occur in the data or were predicted, as scikit-learn does by default: a class
that a small dev set happens to lack cannot be judged. Every figure is a finite number, so that it can be stored as
JSON; a correlation with a constant is undefined and given as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support

from contract.scores import THRESHOLD, Array, ProblemType, sigmoid


def evaluate_logits(
    logits: Array, targets: npt.NDArray[Any], labels: Sequence[str], problem_type: ProblemType
) -> dict[str, Any]:
    """All figures of one evaluation as plain JSON values.

    Args:
        logits: (rows, labels) float32.
        targets: (rows,) class numbers for one label, (rows, labels) 0 or 1 for several, (rows, 1) for regression.
        labels: class names in the order of the logits.
        problem_type: which figures make sense.

    Returns:
        ``rows`` and ``loss`` always; for one label also ``accuracy``, ``macro_f1``, ``per_class``, ``confusion``
        (rows: truth, columns: prediction) and ``predicted_classes``; for several ``accuracy`` (all labels right),
        ``micro_f1``, ``macro_f1``, ``per_class``; for regression ``pearson``, ``spearman``, ``mse``.
    """
    assert len(logits) == len(targets), "one row of logits for each target"
    figures: dict[str, Any] = {"rows": len(targets), "loss": mean_loss(logits, targets, problem_type)}
    match problem_type:
        case "single_label_classification":
            figures |= _single(logits, targets, labels)
        case "multi_label_classification":
            figures |= _several(logits, targets, labels)
        case "regression":
            predicted, wanted = logits[:, 0].astype(float), targets[:, 0].astype(float)
            figures |= {
                "pearson": correlation(predicted, wanted),
                "spearman": correlation(average_ranks(predicted), average_ranks(wanted)),
                "mse": float(np.mean((predicted - wanted) ** 2)),
            }
    return figures


def is_better(figures: dict[str, Any], best: dict[str, Any] | None, metric: str) -> bool:
    """Whether an evaluation beats the best so far: by the metric, and at a tie by the loss."""
    if best is None:
        return True
    sign = -1 if metric == "loss" else 1
    return (sign * figures[metric], -figures["loss"]) > (sign * best[metric], -best["loss"])


def mean_loss(logits: Array, targets: npt.NDArray[Any], problem_type: ProblemType) -> float:
    """Mean over rows of the loss that training minimises: cross-entropy, binary cross-entropy or squared error."""
    wide = logits.astype(float)
    match problem_type:
        case "single_label_classification":
            chosen = np.take_along_axis(wide, targets[:, None], axis=1)[:, 0]
            return float(np.mean(np.logaddexp.reduce(wide, axis=1) - chosen))
        case "multi_label_classification":
            return float(np.mean(np.logaddexp(0.0, wide) - wide * targets))
        case "regression":
            return float(np.mean((wide - targets) ** 2))


def _single(logits: Array, targets: npt.NDArray[Any], labels: Sequence[str]) -> dict[str, Any]:
    predicted = logits.argmax(axis=1)
    numbers = list(range(len(labels)))
    return {
        "accuracy": float(accuracy_score(targets, predicted)),
        "macro_f1": float(f1_score(targets, predicted, average="macro", zero_division=0)),
        "per_class": _table(
            labels, precision_recall_fscore_support(targets, predicted, labels=numbers, zero_division=0)
        ),
        "confusion": confusion_matrix(targets, predicted, labels=numbers).tolist(),
        "predicted_classes": len(np.unique(predicted)),
    }


def _several(logits: Array, targets: npt.NDArray[Any], labels: Sequence[str]) -> dict[str, Any]:
    predicted, truth = (sigmoid(logits) >= THRESHOLD).astype(int), targets.astype(int)
    # label by label: scikit-learn takes a single column for a binary problem with two classes
    columns = [
        precision_recall_fscore_support(truth[:, label], predicted[:, label], average="binary", zero_division=0)[:3]
        for label in range(len(labels))
    ]
    occurring = np.flatnonzero(predicted.any(axis=0) | truth.any(axis=0))
    precision, recall, f1 = np.array(columns).T
    return {
        "accuracy": float(np.mean((predicted == truth).all(axis=1))),
        "micro_f1": float(f1_score(truth.ravel(), predicted.ravel(), zero_division=0)),
        "macro_f1": float(np.mean(f1[occurring])) if len(occurring) else 0.0,
        "per_class": _table(labels, (precision, recall, f1, truth.sum(axis=0))),
    }


def _table(labels: Sequence[str], columns: tuple[npt.NDArray[Any], ...]) -> dict[str, dict[str, float | int]]:
    return {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(s)}
        for label, p, r, f, s in zip(labels, *columns, strict=True)
    }


def correlation(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> float:
    """Pearson's correlation of two (rows,) arrays; 0 if one of them is constant."""
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def average_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rank of each value from 1; equal values share the mean of their ranks, as Spearman's correlation wants."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
