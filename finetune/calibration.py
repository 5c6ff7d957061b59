"""What makes scores mean what they say: a temperature and, for several labels, a threshold for each.

Both are fitted on the dev rows after training, travel in ``robal.json`` as ``calibration`` and decide predictions:

    score = softmax or sigmoid of (logits / temperature)        a label is given from its threshold on, else from 0.5

A temperature above 1 means that the model was too sure of itself. It changes no ranking and no single label
(Guo et al. 2017, https://arxiv.org/abs/1706.04599).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.scores import THRESHOLD, Array, Calibration, ProblemType
from labelled.metrics import mean_loss

Targets = npt.NDArray[Any]
BINS = 15
"""Of the expected calibration error, as in Guo et al."""
FEWEST_ROWS = 20
"""Dev rows below which nothing is fitted: a temperature from a handful of rows says less than none."""
FEWEST_POSITIVES = 5
"""Dev rows with a label below which its threshold stays 0.5."""
RANGE = (0.05, 20.0)
"""Of temperatures."""


def fit(logits: Array, targets: Targets, labels: Sequence[str], problem_type: ProblemType) -> Calibration:
    """The calibration that fits dev rows best.

    Args:
        logits: (rows, labels) of the dev rows.
        targets: see ``labelled.rows.targets_of``.
        labels: in the order of the logits.
        problem_type: regression has no calibration.
    """
    if problem_type == "regression" or len(targets) < FEWEST_ROWS:
        return Calibration()
    predicted = logits.argmax(axis=1) if problem_type == "single_label_classification" else logits > 0
    # without a mistake, the sharper the scores the lower the loss: there is nothing to fit
    temperature = fit_temperature(logits, targets, problem_type) if (predicted != targets).any() else 1.0
    if problem_type == "single_label_classification":
        return Calibration(temperature=temperature)
    scores = Calibration(temperature=temperature).scores(logits, problem_type)
    limits = [best_threshold(scores[:, number], targets[:, number]) for number in range(len(labels))]
    return Calibration(temperature=temperature, thresholds=dict(zip(labels, limits, strict=True)))


def fit_temperature(logits: Array, targets: Targets, problem_type: ProblemType) -> float:
    """The temperature with the lowest loss: golden-section search over its logarithm.

    The loss is convex in 1 / temperature, so the one minimum that a search can find is the best.
    """
    low, high = np.log(RANGE)
    golden = (np.sqrt(5) - 1) / 2

    def loss(log_temperature: float) -> float:
        return mean_loss(logits.astype(float) / np.exp(log_temperature), targets, problem_type)

    while high - low > 1e-4:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return float(round(np.exp((low + high) / 2), 4))


def best_threshold(scores: npt.NDArray[Any], given: npt.NDArray[Any]) -> float:
    """The threshold with the highest F1 on (rows,) scores; midway to the next score, so that it is not on the edge."""
    if given.sum() < FEWEST_POSITIVES:
        return THRESHOLD
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order].astype(float), np.cumsum(given[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + given.sum())
    last_of_equals = np.append(ranked[:-1] > ranked[1:], True)
    best = int(np.argmax(np.where(last_of_equals, f1, -1.0)))
    below = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float(round((ranked[best] + below) / 2, 6))


def reliability(scores: Array, targets: Targets, problem_type: ProblemType) -> list[dict[str, float]]:
    """Occupied bins of equal width: rows, mean confidence and share that is right.

    For one label the confidence is the best class's score; for several, each score of each label is judged as a
    probability of being given.
    """
    if problem_type == "single_label_classification":
        confidence, right = scores.max(axis=1).astype(float), scores.argmax(axis=1) == targets
    else:
        confidence, right = scores.ravel().astype(float), targets.ravel() > 0
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        {
            "rows": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "right": float(right[inside].mean()),
        }
        for number in range(BINS)
        if (inside := bins == number).any()
    ]


def calibration_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Expected calibration error: the mean distance of confidence and share of right answers, weighted by rows."""
    rows = sum(part["rows"] for part in bins)
    return float(sum(part["rows"] * abs(part["confidence"] - part["right"]) for part in bins) / rows)
