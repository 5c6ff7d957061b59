"""Scores against a second implementation in exact arithmetic, and at the edges of float32."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.scores import PROBLEM_TYPES, ranked, scores_from_logits, sigmoid, softmax

floats = st.floats(-(2.0**20), 2.0**20, width=32)
rows = st.lists(floats, min_size=1, max_size=9)


def exact_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    exponentials = [Fraction(math.exp(float(Fraction(x) - Fraction(top)))) for x in logits]
    return [float(x / sum(exponentials)) for x in exponentials]


@given(rows)
def test_softmax_is_a_distribution_and_right(logits: list[float]) -> None:
    scores = softmax(np.array([logits], np.float32))
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert scores.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(scores[0], exact_softmax(logits), atol=2e-6)


@given(rows)
def test_sigmoid_is_right_on_both_sides_of_zero(logits: list[float]) -> None:
    scores = sigmoid(np.array([logits], np.float32))
    assert scores.dtype == np.float32
    expected = [1 / (1 + math.exp(-x)) if x > -700 else 0.0 for x in logits]
    np.testing.assert_allclose(scores[0], expected, atol=1e-6)


@pytest.mark.parametrize("big", [3e38, -3e38, 1e30, 89.0, 104.0, -104.0])
def test_logits_of_any_size_give_no_warning_and_no_nan(big: float) -> None:
    logits = np.array([[big, 0, -big]], np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert np.isfinite(softmax(logits)).all()
        assert np.isfinite(sigmoid(logits)).all()


@given(st.lists(st.lists(floats, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_row_does_not_depend_on_its_neighbours(batch: list[list[float]]) -> None:
    logits = np.array(batch, np.float32)
    for problem_type in PROBLEM_TYPES:
        together = scores_from_logits(logits, problem_type)
        alone = np.concatenate([scores_from_logits(row[None], problem_type) for row in logits])
        np.testing.assert_array_equal(together, alone)


def test_each_problem_type_has_its_function() -> None:
    logits = np.array([[0.5, -1.5]], np.float32)
    np.testing.assert_array_equal(scores_from_logits(logits, "single_label_classification"), softmax(logits))
    np.testing.assert_array_equal(scores_from_logits(logits, "multi_label_classification"), sigmoid(logits))
    np.testing.assert_array_equal(scores_from_logits(logits, "regression"), logits)
    assert set(PROBLEM_TYPES) == {"single_label_classification", "multi_label_classification", "regression"}


@given(st.lists(floats, min_size=1, max_size=6), st.none() | st.integers(1, 9))
def test_ranking_is_a_stable_sort_cut_at_k(scores: list[float], top_k: int | None) -> None:
    labels = [f"label {i}" for i in range(len(scores))]
    expected = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])[:top_k]
    assert ranked(np.array(scores, np.float32), labels, top_k) == expected


def test_ties_stay_in_label_order() -> None:
    assert [label for label, _ in ranked(np.zeros(3, np.float32), ["b", "a", "c"])] == ["b", "a", "c"]
