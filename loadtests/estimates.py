"""Percentiles and ratios with confidence intervals, from rounds that were measured at different moments.

Requests of one round share a process, its memory layout and the machine's mood, so they are not independent; treating
them as such gives intervals that are far too narrow. The unit that is drawn with replacement is therefore the round:
one visit to each server. A ratio keeps the two visits of a round together, so that what slowed both cancels.

With few rounds the plain percentile bootstrap is still too narrow. Two corrections make it honest, and a simulation in
the tests holds the result to its promise: n - 1 of n rounds are drawn, which makes the bootstrap's variance unbiased
(Rao and Wu, 1988), and its standard error, taken on the logarithm, is multiplied by Student's t with n - 1 degrees of
freedom instead of 1.96.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from loadtests.load import Floats

REPLICATES = 1000
MIN_ROUNDS = 3
"""With fewer rounds there is no interval."""
TAIL_SAMPLES = 10
"""A percentile needs this many requests beyond it; else it is an anecdote and gets no interval."""

# fmt: off
STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on
"""97.5 % quantile of Student's t for 1 to 30 degrees of freedom."""

Round = TypeVar("Round")


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A positive number and its 95 % confidence interval."""

    value: float
    low: float | None = None
    high: float | None = None
    """None where the data do not carry an interval."""

    @property
    def inverse(self) -> Estimate:
        """The estimate of 1 / value."""
        return Estimate(
            value=1 / self.value,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
        )


def student_975(freedom: int) -> float:
    """Factor of a two-sided 95 % interval; beyond the table, the first terms of its expansion around 1.96."""
    if freedom <= len(STUDENT_975):
        return STUDENT_975[freedom - 1]
    return 1.95996 + 2.3722 / freedom + 2.8225 / freedom**2


def estimate(rounds: Sequence[Round], statistic: Callable[[Sequence[Round]], float], *, seed: int) -> Estimate:
    """A positive statistic of the pooled rounds, with an interval from drawing whole rounds.

    Args:
        rounds: one item per round; a pair of both servers' data for a ratio.
        statistic: computes the number from any multiset of rounds.
        seed: of the draws.
    """
    count = len(rounds)
    value = statistic(rounds)
    if count < MIN_ROUNDS:
        return Estimate(value=value)
    rng = np.random.default_rng(seed)
    draws = rng.integers(count, size=(REPLICATES, count - 1))
    logs = [math.log(statistic([rounds[index] for index in draw])) for draw in draws]
    spread = student_975(count - 1) * float(np.std(logs))
    return Estimate(value=value, low=value * math.exp(-spread), high=value * math.exp(spread))


def percentile(rounds: Sequence[Floats], percent: float) -> float:
    """A percentile of the pooled samples, interpolated; never more than the largest sample."""
    pooled = np.concatenate(rounds)
    place = percent / 100 * (len(pooled) - 1)
    below = int(place)
    above = min(below + 1, len(pooled) - 1)
    pooled.partition((below, above))  # several times quicker than np.percentile, and called thousands of times
    return float(pooled[below] + (place - below) * (pooled[above] - pooled[below]))


def estimate_percentile(rounds: Sequence[Floats], percent: float, *, seed: int) -> Estimate:
    """A percentile with its interval; no interval when too few samples lie beyond it."""
    result = estimate(rounds, lambda drawn: percentile(drawn, percent), seed=seed)
    return result if _carries(rounds, percent) else Estimate(value=result.value)


def estimate_percentile_ratio(a: Sequence[Floats], b: Sequence[Floats], percent: float, *, seed: int) -> Estimate:
    """Percentile of B over percentile of A, round by round paired."""

    def ratio(drawn: Sequence[tuple[Floats, Floats]]) -> float:
        first, second = zip(*drawn, strict=True)
        return percentile(second, percent) / percentile(first, percent)

    result = estimate(list(zip(a, b, strict=True)), ratio, seed=seed)
    return result if _carries(a, percent) and _carries(b, percent) else Estimate(value=result.value)


def estimate_rate(rounds: Sequence[tuple[float, float]], *, seed: int) -> Estimate:
    """Total count over total seconds, from (count, seconds) of each round."""
    return estimate(rounds, _rate, seed=seed)


def estimate_rate_ratio(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], *, seed: int) -> Estimate:
    """Rate of B over rate of A, round by round paired."""

    def ratio(drawn: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> float:
        first, second = zip(*drawn, strict=True)
        return _rate(second) / _rate(first)

    return estimate(list(zip(a, b, strict=True)), ratio, seed=seed)


def _rate(rounds: Sequence[tuple[float, float]]) -> float:
    return sum(count for count, _ in rounds) / sum(seconds for _, seconds in rounds)


def _carries(rounds: Sequence[Floats], percent: float) -> bool:
    samples = sum(map(len, rounds))
    return samples * min(percent, 100 - percent) / 100 >= TAIL_SAMPLES
