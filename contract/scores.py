"""From logits to what a client reads: probabilities by problem type, and ranked labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

THRESHOLD = 0.5
"""Score from which a label of multi-label data counts as given, unless a calibration says otherwise."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """How logits become scores and scores become labels."""

    temperature: float = 1.0
    thresholds: Mapping[str, float] | None = None
    """Score from which a label of multi-label data counts as given; None is 0.5 for each."""

    def scores(self, logits: Array, problem_type: ProblemType) -> Array:
        """(rows, labels) scores."""
        if problem_type == "regression":
            return logits
        return scores_from_logits((logits / self.temperature).astype(np.float32), problem_type)

    def limits(self, labels: Sequence[str]) -> Array:
        """(labels,) thresholds."""
        given = self.thresholds or {}
        return np.array([given.get(label, THRESHOLD) for label in labels], dtype=np.float32)

    def as_record(self) -> dict[str, Any]:
        """As ``robal.json`` holds it."""
        thresholds = None if self.thresholds is None else dict(self.thresholds)
        return {"temperature": self.temperature, "thresholds": thresholds, "abstain_below": None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Calibration:
        """Of a checkpoint's record; without an entry, scores are taken as they are."""
        entry = record.get("calibration") or {}
        return cls(temperature=float(entry.get("temperature") or 1.0), thresholds=entry.get("thresholds"))
