"""Was the answer right? Checked for every request, so that a fast wrong server cannot win.

Four outcomes that are counted apart and never mixed: only ``ok`` answers have a latency that means anything.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "refused", "error", "wrong"]
"""``refused``: 429, 503 or 504, the server protects itself. ``error``: any other status, or no answer.
``wrong``: status 200 with a body that is not a classification of the texts that were sent."""

REFUSALS = frozenset({429, 503, 504})


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What an answer was worth."""

    outcome: Outcome
    problem: str | None = None
    """What was wrong with it; None for ``ok``."""
    tokens: int = 0
    """Tokens that the server says it read."""


def check_answer(status: int, body: bytes, texts: int) -> Answer:
    """Judge one answer of ``POST /classify``.

    Args:
        status: HTTP status, 0 when there was no answer.
        body: the answer's bytes.
        texts: number of texts in the request.
    """
    if status != 200:
        problem = f"status {status}" if status else "no answer"
        return Answer(outcome="refused" if status in REFUSALS else "error", problem=problem)
    try:
        answer = json.loads(body)
    except ValueError:
        return Answer(outcome="wrong", problem="the body is not JSON")
    try:
        results, tokens = answer["results"], answer["usage"]["tokens"]
    except (KeyError, TypeError):
        return Answer(outcome="wrong", problem="no results or no usage.tokens")
    if not isinstance(results, list) or len(results) != texts:
        found = len(results) if isinstance(results, list) else type(results).__name__
        return Answer(outcome="wrong", problem=f"results: {found} for {texts} texts")
    if not isinstance(tokens, int) or tokens < 1:
        return Answer(outcome="wrong", problem=f"usage.tokens is {tokens!r}")
    if not all(map(_is_result, results)):
        return Answer(outcome="wrong", problem="a result without a label or with a score that is not finite")
    return Answer(outcome="ok", tokens=tokens)


def _is_result(result: Any) -> bool:
    """Whether a result has a label and finite scores; Python's JSON reader lets NaN through, so this looks."""
    if not isinstance(result, dict) or not isinstance(result.get("label"), str):
        return False
    scores = result.get("scores")
    if not isinstance(scores, list) or not scores or not all(isinstance(item, dict) for item in scores):
        return False
    return all(_is_finite(value) for value in (result.get("score"), *(item.get("score") for item in scores)))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
