import numpy as np
import pytest
from sklearn.metrics import f1_score

from contract.scores import sigmoid, softmax
from finetune.calibration import (
    Calibration,
    best_threshold,
    calibration_error,
    fit,
    fit_temperature,
    reliability,
)
from labelled.metrics import mean_loss

ONE, SEVERAL = "single_label_classification", "multi_label_classification"


def drawn(temperature: float, rows: int = 20000) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are too sure by a known factor: labels are drawn from the softmax of logits / temperature."""
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, (rows, 4)).astype(np.float32)
    probabilities = softmax((logits / temperature).astype(np.float32)).astype(float)
    targets = (probabilities.cumsum(axis=1) < generator.random((rows, 1))).sum(axis=1).clip(0, 3)
    return logits, targets


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_made_the_labels_is_found(temperature: float) -> None:
    logits, targets = drawn(temperature)
    assert fit_temperature(logits, targets, ONE) == pytest.approx(temperature, rel=0.05)


def test_no_temperature_on_a_fine_grid_has_a_lower_loss() -> None:
    logits, targets = drawn(1.7, 500)
    found = fit_temperature(logits, targets, ONE)
    grid = np.exp(np.linspace(np.log(0.05), np.log(20), 2000))
    assert mean_loss(logits / found, targets, ONE) <= min(mean_loss(logits / t, targets, ONE) for t in grid) + 1e-7


def test_the_calibration_error_falls_to_nothing_on_what_was_too_sure() -> None:
    logits, targets = drawn(3.0)
    before = calibration_error(reliability(softmax(logits), targets, ONE))
    after = calibration_error(reliability(fit(logits, targets, tuple("abcd"), ONE).scores(logits, ONE), targets, ONE))
    assert before > 0.15
    assert after < 0.02


def test_the_calibration_error_by_hand() -> None:
    scores = np.array([[0.9, 0.1], [0.91, 0.09], [0.6, 0.4], [0.45, 0.55]], dtype=np.float32)
    right = np.array([0, 1, 0, 1])
    # bins of 1/15: {0.9, 0.91} half right, {0.6} right, {0.55} right
    expected = (2 * abs(0.905 - 0.5) + abs(0.6 - 1) + abs(0.55 - 1)) / 4
    assert calibration_error(reliability(scores, right, ONE)) == pytest.approx(expected, abs=1e-6)


def test_no_other_threshold_has_a_higher_f1() -> None:
    generator = np.random.default_rng(1)
    given = (generator.random(300) < 0.15).astype(np.float32)
    scores = np.round(sigmoid((given * 2 - 3 + generator.normal(0, 1.2, 300)).astype(np.float32)), 2)
    limit = best_threshold(scores, given)
    best = max(f1_score(given, scores >= other, zero_division=0) for other in np.linspace(0, 1, 1001))
    assert f1_score(given, scores >= limit) == pytest.approx(best)
    assert limit < 0.4, "rare labels want a lower threshold than 0.5"
    assert best_threshold(scores[:5], given[:5]) == 0.5, "too few to choose by"


def test_the_record_is_read_back_and_used() -> None:
    generator = np.random.default_rng(2)
    targets = (generator.random((400, 2)) < (0.5, 0.1)).astype(np.float32)
    logits = (targets * 3 - 2.5 + generator.normal(0, 1, (400, 2))).astype(np.float32)
    found = fit(logits, targets, ("common", "rare"), SEVERAL)
    record = found.as_record()
    assert record.keys() == {"temperature", "thresholds", "abstain_below"}
    assert Calibration.from_record({"calibration": record}) == found
    assert found.limits(("common", "rare")).tolist() == pytest.approx(list(record["thresholds"].values()))
    assert np.allclose(found.scores(logits, SEVERAL), 1 / (1 + np.exp(-logits / record["temperature"])), atol=1e-6)
    assert Calibration.from_record({}) == Calibration()
    assert fit(logits[:5], targets[:5], ("common", "rare"), SEVERAL) == Calibration(), "too few rows"


def test_a_model_without_a_mistake_on_dev_keeps_its_scores() -> None:
    targets = np.arange(40) % 2
    assert fit(np.eye(2, dtype=np.float32)[targets], targets, ("a", "b"), ONE) == Calibration()
