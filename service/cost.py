"""What an engine call costs, learned from the calls themselves.

A call of n tokens takes about ``fixed + per_token * n`` seconds: padding is not computed, so tokens are what is paid
for. The two are the least-squares line through the recent calls, older ones fading, so that the estimate follows a
machine that gets busy.
"""

from __future__ import annotations

FADING = 0.97
"""Weight of a call after each further one; about the last 30 decide."""


class CostModel:
    """Seconds of an engine call by its tokens."""

    def __init__(self) -> None:
        self._weight = self._tokens = self._seconds = self._tokens_squared = self._tokens_seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from one call."""
        self._weight = FADING * self._weight + 1
        self._tokens = FADING * self._tokens + tokens
        self._seconds = FADING * self._seconds + seconds
        self._tokens_squared = FADING * self._tokens_squared + tokens * tokens
        self._tokens_seconds = FADING * self._tokens_seconds + tokens * seconds

    def seconds(self, tokens: int) -> float:
        """Estimate for a call, or for several calls of together ``tokens`` tokens; 0 before the first observation."""
        if not self._weight:
            return 0.0
        spread = self._weight * self._tokens_squared - self._tokens**2
        slope = (self._weight * self._tokens_seconds - self._tokens * self._seconds) / spread if spread > 1e-9 else 0.0
        fixed = (self._seconds - slope * self._tokens) / self._weight
        if slope <= 0 or fixed < 0:  # all calls of one size, or noise: the line through the origin
            slope, fixed = self._seconds / self._tokens, 0.0
        return fixed + slope * tokens
