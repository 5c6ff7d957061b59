"""What one answer of a service is worth. A fast server that answers wrongly must not win.

Outcomes are counted apart and never mixed: only ``ok`` answers have a latency that means anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "refused", "error", "wrong", "dropped"]
"""``refused``: 429, 503 or 504, the server protects itself. ``error``: any other status, or no answer.
``wrong``: status 200 with a body that is not a classification of the texts that were sent. ``dropped``: never sent,
because the generator had as many requests open as it may."""

REFUSALS = frozenset({429, 503, 504})


class WrongAnswer(ValueError):
    """Why a body is not a classification of the texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a body says."""

    labels: Sequence[str]
    """The best label of each text."""
    tokens: int = 0
    """Tokens that the server says it read; 0 if it does not tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What an answer was worth."""

    outcome: Outcome
    problem: str | None = None
    """What was wrong with it; None for ``ok``."""
    tokens: int = 0
    mislabelled: int = 0
    """Texts whose label is not the expected one."""


Reader: TypeAlias = Callable[[Any], Reading]
"""Reads a parsed body; raises WrongAnswer, KeyError, TypeError or IndexError for what is none."""


def judge(read: Reader, status: int, body: bytes, *, texts: int, labels: Sequence[str] | None = None) -> Answer:
    """Judge one answer.

    Args:
        read: of the service's protocol.
        status: HTTP status, 0 when there was no answer.
        body: the answer's bytes.
        texts: number of texts in the request.
        labels: the expected label of each text, if known.
    """
    if status != 200:
        problem = f"status {status}" if status else "no answer"
        return Answer(outcome="refused" if status in REFUSALS else "error", problem=problem)
    try:
        reading = read(json.loads(body))
    except WrongAnswer as error:
        return Answer(outcome="wrong", problem=str(error))
    except ValueError:
        return Answer(outcome="wrong", problem="the body is not JSON")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        return Answer(outcome="wrong", problem=f"the body has another shape ({type(error).__name__}: {error})")
    if len(reading.labels) != texts:
        return Answer(outcome="wrong", problem=f"results: {len(reading.labels)} for {texts} texts")
    mislabelled = sum(found != label for found, label in zip(reading.labels, labels or reading.labels, strict=True))
    return Answer(outcome="ok", tokens=reading.tokens, mislabelled=mislabelled)


def best(scores: Sequence[Any]) -> str:
    """The label with the highest score of ``[{label, score}, ...]``; Python's JSON lets NaN through, so this looks."""
    if not isinstance(scores, list) or not scores:
        raise WrongAnswer("a result without scores")
    for item in scores:
        if not isinstance(item["label"], str) or not finite(item["score"]):
            raise WrongAnswer("a result without a label or with a score that is not finite")
    return str(max(scores, key=lambda item: item["score"])["label"])


def finite(value: Any) -> bool:
    """Whether it is a number, and neither NaN nor infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
