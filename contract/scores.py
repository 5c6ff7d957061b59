"""From logits to what a client reads: probabilities by problem type, and ranked labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float32]
ProblemType: TypeAlias = Literal["single_label_classification", "multi_label_classification", "regression"]
"""Hugging Face's names for the three kinds of sequence-classification head."""

PROBLEM_TYPES: tuple[ProblemType, ...] = get_args(ProblemType)


def softmax(logits: Array) -> Array:
    """Probabilities over the last axis of (batch, labels); safe for logits of any size."""
    # float64: the distance of two float32 logits can be more than float32 holds
    exponentials = np.exp(np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=np.float64))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True), dtype=logits.dtype)


def sigmoid(logits: Array) -> Array:
    """Independent probabilities; computed on the side where ``exp`` cannot overflow."""
    small = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1 / (1 + small), small / (1 + small)), dtype=logits.dtype)


def scores_from_logits(logits: Array, problem_type: ProblemType) -> Array:
    """(batch, labels) scores: softmax for one label, sigmoid for several, the raw value for regression."""
    match problem_type:
        case "single_label_classification":
            return softmax(logits)
        case "multi_label_classification":
            return sigmoid(logits)
        case "regression":
            return logits


def ranked(scores: Array, labels: Sequence[str], top_k: int | None = None) -> list[tuple[str, float]]:
    """(label, score) pairs of one row (labels,), best first, ties in label order; all of them by default."""
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [(labels[index], float(scores[index])) for index in order]
