import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score
from torch.nn import functional

from finetune.config import METRICS
from labelled.metrics import average_ranks, correlation, evaluate_logits, is_better, mean_loss

LABELS = ("a", "b", "c")


def one_hot(classes: list[int], labels: int = 3) -> np.ndarray:
    return np.eye(labels, dtype=np.float32)[classes]


def test_figures_of_a_table_counted_by_hand() -> None:
    truth = np.array([0, 0, 0, 0, 1, 1])
    figures = evaluate_logits(one_hot([0, 0, 0, 1, 1, 0]), truth, LABELS, "single_label_classification")
    assert figures["accuracy"] == pytest.approx(4 / 6)
    assert figures["confusion"] == [[3, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert figures["per_class"]["a"] == {"precision": 0.75, "recall": 0.75, "f1": 0.75, "support": 4}
    assert figures["per_class"]["b"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert figures["macro_f1"] == pytest.approx((0.75 + 0.5) / 2), "c neither occurs nor is predicted"
    assert figures["predicted_classes"] == 2
    json.dumps(figures, allow_nan=False)


def test_several_labels_counted_by_hand() -> None:
    truth = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0]], np.float32)
    logits = np.array([[2, -2, -2], [-2, -2, -2], [3, 3, -3]], np.float32)
    figures = evaluate_logits(logits, truth, LABELS, "multi_label_classification")
    assert figures["accuracy"] == pytest.approx(1 / 3)
    assert figures["per_class"]["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert figures["micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert figures["macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert figures["micro_f1"] == pytest.approx(f1_score(truth.astype(int), logits > 0, average="micro"))
    single = evaluate_logits(logits[:, :1], truth[:, :1], ("a",), "multi_label_classification")
    assert single["micro_f1"] == pytest.approx(2 / 3)
    json.dumps(figures, allow_nan=False)


values = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 1.0, 2.0, 7.0]), min_size=3, max_size=12)


@given(values, st.randoms())
def test_correlations_are_scipys(left: list[float], randomness: object) -> None:
    right = [value * 0.5 + randomness.choice([0, 1, 3]) for value in left]  # type: ignore[attr-defined]
    a, b = np.array(left), np.array(right)
    assert average_ranks(a).tolist() == stats.rankdata(a).tolist()
    if np.ptp(a) and np.ptp(b):
        assert correlation(a, b) == pytest.approx(stats.pearsonr(a, b)[0])
        assert correlation(average_ranks(a), average_ranks(b)) == pytest.approx(stats.spearmanr(a, b)[0])


def test_a_constant_correlates_with_nothing() -> None:
    figures = evaluate_logits(np.ones((3, 1), np.float32), np.array([[1.0], [2.0], [3.0]]), ("score",), "regression")
    assert (figures["pearson"], figures["spearman"], figures["rows"]) == (0.0, 0.0, 3)
    json.dumps(figures, allow_nan=False)


def test_the_loss_is_torchs() -> None:
    logits = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) * 50
    classes, several = np.array([0, 1, 2, 0, 1, 2, 0]), one_hot([0, 1, 2, 0, 1, 2, 0])
    tensor = torch.from_numpy(logits).double()
    assert mean_loss(logits, classes, "single_label_classification") == pytest.approx(
        functional.cross_entropy(tensor, torch.from_numpy(classes)).item()
    )
    assert mean_loss(logits, several, "multi_label_classification") == pytest.approx(
        functional.binary_cross_entropy_with_logits(tensor, torch.from_numpy(several).double()).item()
    )
    assert mean_loss(logits[:, :1], several[:, :1], "regression") == pytest.approx(
        functional.mse_loss(tensor[:, :1], torch.from_numpy(several[:, :1]).double()).item()
    )


def test_better_is_by_metric_then_by_loss() -> None:
    best = {"macro_f1": 0.9, "loss": 0.3}
    assert is_better(best, None, "macro_f1")
    assert is_better({"macro_f1": 0.91, "loss": 9.0}, best, "macro_f1")
    assert is_better({"macro_f1": 0.9, "loss": 0.2}, best, "macro_f1")
    assert not is_better(best, best, "macro_f1")
    assert is_better({"macro_f1": 0.1, "loss": 0.2}, best, "loss")
    assert not is_better({"macro_f1": 1.0, "loss": 0.4}, best, "loss")


def test_every_metric_to_choose_by_is_reported() -> None:
    for problem_type, metrics in METRICS.items():
        columns = 1 if problem_type == "regression" else 3
        targets = np.zeros(2, np.int64) if problem_type.startswith("single") else np.zeros((2, columns), np.float32)
        figures = evaluate_logits(np.zeros((2, columns), np.float32), targets, LABELS[:columns], problem_type)
        assert all(math.isfinite(figures[metric]) for metric in metrics)
