import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.estimates import (
    Estimate,
    estimate_percentile,
    estimate_percentile_ratio,
    estimate_rate,
    estimate_rate_ratio,
    percentile,
    student_975,
)
from loadtests.records import Floats
from loadtests.verdict import judge


@pytest.mark.parametrize("freedom", [*range(1, 60), 100, 1000])
def test_the_table_is_students(freedom: int) -> None:
    assert student_975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=6e-4)


def test_percentiles_are_exact_where_buckets_lie() -> None:
    """Locust rounds 10,449 to 10,000 and 1,451 to 1,500, so that its p99 can exceed the maximum."""
    assert percentile([np.array([10449.0] * 99 + [10451.0])], 50) == 10449
    assert percentile([np.array([995.0, 1449.0, 1451.0])], 100) == 1451
    assert percentile([np.array([995.0]), np.array([1449.0, 1451.0])], 50) == 1449


@given(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=50), st.floats(0, 100))
def test_a_percentile_is_numpys_and_lies_between_the_extremes(values: list[float], percent: float) -> None:
    result = percentile([np.array(values)], percent)
    assert min(values) * (1 - 1e-12) <= result <= max(values) * (1 + 1e-12)
    assert result == pytest.approx(float(np.percentile(values, percent)))


def test_too_few_rounds_or_samples_give_no_interval() -> None:
    rounds = [np.linspace(1, 2, 100) for _ in range(2)]
    assert estimate_percentile(rounds, 50, seed=0).low is None
    rounds = [np.linspace(1, 2, 100) for _ in range(4)]
    assert estimate_percentile(rounds, 50, seed=0).low is not None
    assert estimate_percentile(rounds, 99, seed=0).low is None, "4 samples lie beyond the p99 of 400"
    assert estimate_percentile(rounds, 97.5, seed=0).low is not None
    assert estimate_percentile_ratio(rounds, [r[:5] for r in rounds], 95, seed=0).low is None


def test_a_seed_gives_one_interval() -> None:
    rng = np.random.default_rng(0)
    rounds = [rng.lognormal(size=50) for _ in range(5)]
    assert estimate_percentile(rounds, 50, seed=1) == estimate_percentile(rounds, 50, seed=1)
    assert estimate_percentile(rounds, 50, seed=1) != estimate_percentile(rounds, 50, seed=2)


def test_what_slows_both_alike_cancels_in_the_ratio() -> None:
    """The machine is up to three times slower in some rounds; the ratio is 1.25 in each and its interval is tight."""
    rng = np.random.default_rng(0)
    base = rng.lognormal(sigma=0.05, size=200)
    a = [base * slow for slow in (1.0, 3.0, 1.5, 2.0, 1.1)]
    ratio = estimate_percentile_ratio(a, [1.25 * sample for sample in a], 50, seed=0)
    assert ratio == Estimate(value=pytest.approx(1.25), low=pytest.approx(1.25), high=pytest.approx(1.25))
    alone = estimate_percentile(a, 50, seed=0)
    assert alone.low is not None
    assert alone.high is not None
    assert alone.high / alone.low > 2


def test_rates_are_totals_over_totals() -> None:
    assert estimate_rate([(10, 1), (90, 3)], seed=0).value == 25
    assert estimate_rate_ratio([(10, 1), (90, 3)], [(10, 2), (40, 2)], seed=0).value == 0.5


def test_the_inverse_swaps_the_ends() -> None:
    assert Estimate(value=2, low=1, high=4).inverse == Estimate(value=0.5, low=0.25, high=1)
    assert Estimate(value=2).inverse == Estimate(value=0.5)


def simulate(rng: np.random.Generator, rounds: int, process_sd: float, true_ratio: float) -> Estimate:
    """A machine that drifts (both feel it) and processes that differ from life to life (each feels its own)."""
    drift = rng.normal(0, 0.1, rounds)

    def one(factor: float) -> list[Floats]:
        own = rng.normal(0, process_sd, rounds)
        return [factor * np.exp(d + o + rng.normal(0, 0.3, 60)) for d, o in zip(drift, own, strict=True)]

    return estimate_percentile_ratio(one(1), one(true_ratio), 50, seed=int(rng.integers(1 << 30)))


@pytest.mark.parametrize(("rounds", "process_sd"), [(4, 0.0), (4, 0.05), (8, 0.05)])
def test_intervals_keep_their_promise(rounds: int, process_sd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """About 95 of 100 intervals must hold the truth. Drawing requests instead of rounds would reach about 60 here."""
    monkeypatch.setattr("loadtests.estimates.REPLICATES", 150)
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        ratio = simulate(rng, rounds, process_sd, 1.1)
        assert ratio.low is not None
        assert ratio.high is not None
        hits += ratio.low <= 1.1 <= ratio.high
    assert 0.90 <= hits / 200 <= 0.995


def test_verdicts_err_as_rarely_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of one server are hardly ever called different, and a 20 % slower one hardly ever equivalent."""
    monkeypatch.setattr("loadtests.estimates.REPLICATES", 150)
    rng = np.random.default_rng(3)
    same = [judge(simulate(rng, 8, 0.01, 1.0)) for _ in range(80)]
    slower = [judge(simulate(rng, 8, 0.01, 1.2)) for _ in range(80)]
    assert sum(verdict in ("faster", "slower") for verdict in same) <= 8
    assert slower.count("equivalent") == slower.count("faster") == 0
    assert slower.count("slower") >= 70
