"""How sure a figure is: bootstrap intervals, and paired tests between two models on the same rows.

Rows are drawn with replacement and the figure is computed again, a thousand times (Efron 1979). Of two models the same
rows are drawn, so that what is hard for both cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.scores import THRESHOLD, Array, ProblemType, sigmoid
from labelled.metrics import average_ranks, correlation

RESAMPLES = 1000
Rows = npt.NDArray[np.int64]
Figure = Callable[[Rows], dict[str, float]]


def figure_of_rows(logits: Array, targets: npt.NDArray[Any], problem_type: ProblemType) -> Figure:
    """A function from row numbers to the figures on these rows, by the rules of ``labelled.metrics`` but fast.

    Args:
        logits: (rows, labels).
        targets: see ``labelled.rows.targets_of``.
        problem_type: accuracy and macro_f1 for one label, accuracy and micro_f1 for several, correlations for numbers.
    """
    match problem_type:
        case "single_label_classification":
            classes = logits.shape[1]
            cell = targets * classes + logits.argmax(axis=1)

            def single(rows: Rows) -> dict[str, float]:
                confusion = np.bincount(cell[rows], minlength=classes**2).reshape(classes, classes)
                hits, sizes = confusion.diagonal(), confusion.sum(axis=0) + confusion.sum(axis=1)
                f1 = 2 * hits[sizes > 0] / sizes[sizes > 0]
                return {"accuracy": float(hits.sum() / len(rows)), "macro_f1": float(f1.mean())}

            return single
        case "multi_label_classification":
            predicted, given = sigmoid(logits) >= THRESHOLD, targets > 0
            exact = (predicted == given).all(axis=1)
            both, either = (predicted & given).sum(axis=1), predicted.sum(axis=1) + given.sum(axis=1)

            def several(rows: Rows) -> dict[str, float]:
                return {
                    "accuracy": float(exact[rows].mean()),
                    "micro_f1": float(2 * both[rows].sum() / max(either[rows].sum(), 1)),
                }

            return several
        case "regression":
            scores, wanted = logits[:, 0].astype(float), targets[:, 0].astype(float)

            def number(rows: Rows) -> dict[str, float]:
                left, right = scores[rows], wanted[rows]
                spearman = correlation(average_ranks(left), average_ranks(right))
                return {"pearson": correlation(left, right), "spearman": spearman}

            return number


def bootstrap(figure: Figure, rows: int, *, seed: int = 0) -> dict[str, tuple[float, float]]:
    """The middle 95 % of each figure over resamples of the rows."""
    generator = np.random.default_rng(seed)
    drawn = [figure(generator.integers(0, rows, rows)) for _ in range(RESAMPLES)]
    return {name: _middle([values[name] for values in drawn]) for name in drawn[0]}


def paired_bootstrap(
    first: Figure, second: Figure, rows: int, *, seed: int = 0
) -> dict[str, tuple[float, float, float, float]]:
    """Of each figure: second minus first, the middle 95 % of it, and the two-sided p-value of no difference.

    The p-value is twice the smaller share of resamples on either side of zero, at least 1 / resamples.
    """
    generator = np.random.default_rng(seed)
    everything = np.arange(rows)
    before, after = first(everything), second(everything)
    draws: dict[str, list[float]] = {name: [] for name in before}
    for _ in range(RESAMPLES):
        drawn = generator.integers(0, rows, rows)
        left, right = first(drawn), second(drawn)
        for name, values in draws.items():
            values.append(right[name] - left[name])
    answer = {}
    for name, values in draws.items():
        side = min(np.mean(np.array(values) <= 0), np.mean(np.array(values) >= 0))
        answer[name] = (after[name] - before[name], *_middle(values), max(1 / RESAMPLES, min(1.0, 2 * float(side))))
    return answer


def mcnemar(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> tuple[int, int, float]:
    """McNemar's exact test on which rows each of two models has right.

    Returns:
        Rows that only the first has right, rows that only the second has right, and the two-sided p-value: how likely
        such a split is if a coin decided each of these rows.
    """
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    differing, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.exp(_log_choose(differing, k) - differing * math.log(2)) for k in range(fewer + 1))
    return only_first, only_second, min(1.0, 2 * tail)


def _log_choose(whole: int, part: int) -> float:
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)


def _middle(values: list[float]) -> tuple[float, float]:
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
