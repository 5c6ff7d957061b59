"""From numbers to the sentence that follows from them. Pure functions; nothing here measures.

A difference that is not significant is not the same as no difference: few data make everything insignificant. So a
ratio is called equivalent only when its whole 95 % interval lies within the margin, faster or slower only when the
whole interval lies on one side of 1, and otherwise the data do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from loadtests.estimates import MIN_ROUNDS, Estimate, student_975

Verdict: TypeAlias = Literal["equivalent", "faster", "slower", "not enough data"]

MARGIN = 0.05
"""Ratios from 1/1.05 to 1.05 are one and the same for practice."""
MAX_USEFUL_ROUNDS = 200
INVALID = "Not valid, compare nothing with these numbers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One ratio of B to A, for the sentence."""

    what: str
    """Such as ``with 1 user its median latency``."""
    ratio: Estimate
    higher_is_better: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """One service beside the baseline. Ratios are its own to the baseline's; None where one is not known."""

    name: str
    size_ratio: float | None
    memory_ratio: float | None
    comparisons: Sequence[Comparison]
    bands: Sequence[Comparison] = ()
    """Ratios for parts of the traffic; those that differ for sure and by more than the margin are told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Everything that the sentence speaks of."""

    a: str
    """The baseline."""
    rivals: Sequence[Rival]
    alone: Sequence[str] = ()
    """Statements about the baseline alone, for when it has no rival."""
    rounds: int
    margin: float = MARGIN
    reasons: Sequence[str] = ()
    """Why the run is not valid; empty when it is."""


def judge(ratio: Estimate, *, margin: float = MARGIN, higher_is_better: bool = False) -> Verdict:
    """What a ratio of B to A says about B."""
    if ratio.low is None or ratio.high is None:
        return "not enough data"
    time = ratio.inverse if higher_is_better else ratio
    assert time.low is not None
    assert time.high is not None
    if 1 / (1 + margin) <= time.low and time.high <= 1 + margin:
        return "equivalent"
    if time.high < 1:
        return "faster"
    if time.low > 1:
        return "slower"
    return "not enough data"


def rounds_needed(ratio: Estimate, *, rounds: int, margin: float = MARGIN) -> int | None:
    """About how many rounds would settle an open ratio, if it stays where it is; None when more do not help.

    An interval shrinks with Student's t over the root of the rounds. It settles the matter when its half-width, on the
    logarithm, is less than the distance to the margin (equivalent) or to 1 (faster or slower), whichever is farther.
    """
    if ratio.low is None or ratio.high is None or rounds < MIN_ROUNDS:
        return None
    half = math.log(ratio.high / ratio.low) / 2
    place = abs(math.log(ratio.value))
    distance = max(math.log1p(margin) - place, place)
    scale = half * math.sqrt(rounds) / student_975(rounds - 1)
    for more in range(rounds + 1, MAX_USEFUL_ROUNDS + 1):
        if scale * student_975(more - 1) / math.sqrt(more) < distance:
            return more
    return None


def describe(comparison: Comparison, *, rounds: int, margin: float = MARGIN) -> str:
    """One ratio in words, such as ``its median latency is 0.99x (95% CI 0.97-1.02): no difference beyond 5%``."""
    ratio, percent = comparison.ratio, f"{margin:.0%}"
    if ratio.low is None or ratio.high is None:
        return f"{comparison.what} is {ratio.value:.2f}x, but that is not enough data for an interval"
    verdict = judge(ratio, margin=margin, higher_is_better=comparison.higher_is_better)
    time = ratio.inverse if comparison.higher_is_better else ratio
    assert time.low is not None
    assert time.high is not None
    better, worse = ("higher", "lower") if comparison.higher_is_better else ("faster", "slower")
    match verdict:
        case "equivalent":
            meaning = f"no difference beyond {percent}"
        case "faster":
            doubt = "" if time.high < 1 / (1 + margin) else f", though perhaps by less than {percent}"
            meaning = f"{better}{doubt}"
        case "slower":
            doubt = "" if time.low > 1 + margin else f", though perhaps by less than {percent}"
            meaning = f"{worse}{doubt}"
        case "not enough data":
            gain = f"no gain beyond {percent}, but " if time.low >= 1 / (1 + margin) else ""
            need = rounds_needed(ratio, rounds=rounds, margin=margin)
            more = f" (about {need} rounds would be)" if need else ""
            meaning = f"{gain}not enough data to call it equivalent or different{more}"
    return f"{comparison.what} is {ratio.value:.2f}x (95% CI {ratio.low:.2f}-{ratio.high:.2f}): {meaning}"


def clauses(claim: Claim) -> list[str]:
    """The statements of the verdict, the most important first."""
    if claim.reasons:
        return [INVALID, *claim.reasons]
    if not claim.rivals:
        return list(claim.alone)
    return [part for rival in claim.rivals for part in _of(rival, claim)]


def _of(rival: Rival, claim: Claim) -> list[str]:
    parts = [_takes(rival, claim.a)] if rival.size_ratio is not None or rival.memory_ratio is not None else []
    told = [describe(item, rounds=claim.rounds, margin=claim.margin) for item in rival.comparisons]
    for band in rival.bands:
        low, high = band.ratio.low, band.ratio.high
        if low is not None and high is not None and (high < 1 / (1 + claim.margin) or low > 1 + claim.margin):
            told.append(describe(band, rounds=claim.rounds, margin=claim.margin))
    if not parts and told:  # nothing has named it yet
        told[0] = f"{rival.name} beside {claim.a}: {told[0]}"
    return parts + told


def _takes(rival: Rival, a: str) -> str:
    known = [ratio for ratio in (rival.size_ratio, rival.memory_ratio) if ratio is not None]
    if len(known) == 2 and all(map(same, known)):
        return f"{rival.name} is as large on disk and in memory as {a}"
    size = [] if rival.size_ratio is None else [_size(rival.size_ratio)]
    memory = [] if rival.memory_ratio is None else [_memory(rival.memory_ratio)]
    return f"{rival.name} {' and '.join(size + memory)} than {a}"


def sentence(claim: Claim) -> str:
    """The verdict of a whole comparison."""
    if claim.reasons:
        return f"{INVALID}: " + "; ".join(claim.reasons) + "."
    return "; ".join(clauses(claim)) + "."


def same(ratio: float) -> bool:
    """Whether a ratio is 1 at the precision that is shown."""
    return f"{max(ratio, 1 / ratio):.1f}" == "1.0"


def _size(ratio: float) -> str:
    if same(ratio):
        return "is no smaller on disk"
    return f"is {fold(ratio)} {'smaller' if ratio < 1 else 'larger'} on disk"


def _memory(ratio: float) -> str:
    if same(ratio):
        return "takes no less memory"
    return f"takes {fold(ratio)} {'less' if ratio < 1 else 'more'} memory"


def fold(ratio: float) -> str:
    """How many times, always at least 1: ``10.6x`` for a ratio of 0.094."""
    return f"{max(ratio, 1 / ratio):.1f}x"
