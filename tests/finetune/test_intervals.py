import math

import numpy as np
import pytest

from finetune.intervals import bootstrap, figure_of_rows, mcnemar, paired_bootstrap
from labelled.metrics import evaluate_logits

GENERATOR = np.random.default_rng(0)
ONE, SEVERAL = "single_label_classification", "multi_label_classification"
LABELS = ("a", "b", "c", "d")
CASES = {
    ONE: GENERATOR.integers(0, 3, 200),
    SEVERAL: (GENERATOR.random((200, 4)) < 0.3).astype(np.float32),
    "regression": GENERATOR.normal(size=(200, 1)).astype(np.float32),
}


def logits_for(kind: str, noise: float, seed: int) -> np.ndarray:
    generator, targets = np.random.default_rng(seed), CASES[kind]
    wanted = {ONE: np.eye(4)[CASES[ONE]], SEVERAL: CASES[SEVERAL] * 2 - 1, "regression": CASES["regression"]}[kind]
    return (wanted + generator.normal(0, noise, (len(targets), wanted.shape[1]))).astype(np.float32)


@pytest.mark.parametrize("kind", CASES)
def test_the_fast_figures_are_those_of_the_metrics(kind: str) -> None:
    """One class never occurs and is sometimes predicted: the case where averages differ by rule."""
    logits, targets = logits_for(kind, 0.8, 1), CASES[kind]
    rows = np.random.default_rng(3).integers(0, 200, 50)
    expected = evaluate_logits(logits[rows], targets[rows], LABELS[: logits.shape[1]], kind)
    fast = figure_of_rows(logits, targets, kind)(rows)
    assert fast.keys() >= {"accuracy"} or kind == "regression"
    for name, value in fast.items():
        assert value == pytest.approx(expected[name], abs=1e-9), name


def test_the_interval_of_an_accuracy_is_that_of_the_binomial() -> None:
    logits, targets = logits_for(ONE, 0.8, 1), CASES[ONE]
    accuracy = float((logits.argmax(1) == targets).mean())
    low, high = bootstrap(figure_of_rows(logits, targets, ONE), 200)["accuracy"]
    wide = 1.96 * math.sqrt(accuracy * (1 - accuracy) / 200)
    assert (low, high) == pytest.approx((accuracy - wide, accuracy + wide), abs=0.012)


def test_mcnemar_by_hand() -> None:
    first, second = np.array([1, 1, 1, 1, 1, 0, 0, 1], bool), np.array([0, 0, 0, 0, 0, 1, 0, 1], bool)
    # 5 against 1: P(at most 1 of 6) = (1 + 6) / 64 on each side
    assert mcnemar(first, second) == (5, 1, pytest.approx(2 * 7 / 64))
    assert mcnemar(first, first) == (0, 0, 1.0)
    many = np.zeros(5000, bool)
    assert mcnemar(many, ~many)[2] < 1e-300 or mcnemar(many, ~many)[2] == 0


@pytest.mark.parametrize("kind", CASES)
def test_a_better_model_is_told_from_an_equal_one(kind: str) -> None:
    targets = CASES[kind]
    worse, better = (
        figure_of_rows(logits_for(kind, noise, seed), targets, kind) for noise, seed in ((2.0, 1), (0.3, 2))
    )
    for difference, low, high, p in paired_bootstrap(worse, better, 200).values():
        assert 0 < low < difference < high
        assert p <= 0.002
    for difference, low, high, p in paired_bootstrap(better, better, 200).values():
        assert (difference, low, high, p) == (0, 0, 0, 1)
