"""Whether classes are as frequent in one file as in another: Pearson's chi-square test of homogeneity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LEAST_EXPECTED = 5.0
"""The usual rule: with fewer expected rows in some cell, the p of a chi-square test is a rough one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How the classes of two files differ in frequency."""

    chi_square: float
    freedom: int
    """Degrees of freedom: classes that occur in either file, less one."""
    p: float
    """Chance of a difference at least as large if both files were drawn from the same classes."""
    cramers_v: float
    """Size of the difference, 0 to 1; unlike p it does not shrink or grow with the number of rows."""
    rough: bool
    """Some class has so few rows that p is only a rough figure."""


def drift(left: Mapping[str, int], right: Mapping[str, int]) -> Drift | None:
    """Compare two files' rows per class; None if one of them has no rows or there is only one class."""
    names = [name for name in dict.fromkeys([*left, *right]) if left.get(name, 0) + right.get(name, 0)]
    counts = np.array([[side.get(name, 0) for name in names] for side in (left, right)], dtype=np.float64)
    if len(names) < 2 or not counts.sum(axis=1).all():
        return None
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return Drift(
        chi_square=statistic,
        freedom=len(names) - 1,
        p=chi_square_tail(statistic, len(names) - 1),
        cramers_v=math.sqrt(statistic / counts.sum()),
        rough=bool(expected.min() < LEAST_EXPECTED),
    )


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Chance that a chi-square variable exceeds ``statistic``: the closed form for whole degrees of freedom.

    With h = statistic / 2 it is the sum of exp(-h) h^s / Gamma(s + 1) over s = 0, 1, ... below freedom / 2 if that is
    whole, else erfc(sqrt(h)) and the sum over s = 1/2, 3/2, ...
    """
    half = statistic / 2
    if half <= 0:
        return 1.0
    odd = freedom % 2
    start = math.erfc(math.sqrt(half)) if odd else 0.0
    steps = (term + odd / 2 for term in range(freedom // 2))
    terms = (math.exp(step * math.log(half) - half - math.lgamma(step + 1)) for step in steps)
    return min(1.0, start + math.fsum(terms))
