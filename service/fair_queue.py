"""Who is next: a queue of texts that is fair between requests, by tokens, and starves nobody.

Self-clocked fair queueing (Golestani, INFOCOM 1994). Each request is a flow; each of its texts gets a tag, the virtual
time at which it would be done if all waiting requests were served side by side in proportion to their weights:

    tag = max(now, the request's previous tag) + tokens / weight        now = the largest tag that was served

Texts are served by tag. So a list of a thousand texts and a lone text share the engine, a long text pays for its
length, and priority is a larger weight. As ``now`` grows with all that is served, every tag is reached after a bounded
amount of other work: waiting makes a text older and therefore more urgent, whatever arrives behind it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SPARE = 64
"""Removed texts that may lie in the heap beyond as many as wait, before it is cleared of them."""


@dataclass(eq=False, slots=True)
class Flow:
    """One request in the queue."""

    weight: float
    tag: float = 0.0
    """That of its text that was queued last."""


@dataclass(eq=False, slots=True)
class Entry(Generic[T]):
    """One waiting text."""

    payload: T
    tokens: int
    tag: float
    arrival: int
    waiting: bool = True

    def __lt__(self, other: Entry[T]) -> bool:
        return (self.tag, self.arrival) < (other.tag, other.arrival)


class FairQueue(Generic[T]):
    """Waiting texts; ``len`` is their number and ``tokens`` their size.

    Args:
        spare: removed texts kept beyond as many as wait; more makes clearing rarer.
    """

    def __init__(self, *, spare: int = SPARE) -> None:
        self.tokens = 0
        self._spare = spare
        self._now = 0.0
        self._heap: list[Entry[T]] = []
        self._count = self._arrivals = 0

    def __len__(self) -> int:
        return self._count

    def push(self, payload: T, *, tokens: int, flow: Flow) -> Entry[T]:
        """Add a text of a request behind the request's others."""
        flow.tag = max(self._now, flow.tag) + tokens / flow.weight
        self._arrivals += 1
        entry = Entry(payload, tokens, flow.tag, self._arrivals)
        heapq.heappush(self._heap, entry)
        self._count += 1
        self.tokens += tokens
        return entry

    def take(self, *, max_tokens: int, max_items: int) -> list[T]:
        """Remove the next texts: in order, together within the limits, at least one if any waits."""
        taken: list[T] = []
        tokens = 0
        while self._heap and len(taken) < max_items:
            entry = self._heap[0]
            if entry.waiting and taken and tokens + entry.tokens > max_tokens:
                break
            heapq.heappop(self._heap)
            if entry.waiting:
                tokens += entry.tokens
                self._now = entry.tag
                self._leave(entry)
                taken.append(entry.payload)
        return taken

    def remove(self, entry: Entry[T]) -> None:
        """Take one text out, wherever it is in the queue.

        Its place in the heap is cleared when it is reached, or when half of the heap is such places: callers who come
        and go during one long engine call must not add up.
        """
        if entry.waiting:
            self._leave(entry)
            if len(self._heap) > 2 * self._count + self._spare:
                self._heap = [other for other in self._heap if other.waiting]
                heapq.heapify(self._heap)

    def _leave(self, entry: Entry[T]) -> None:
        entry.waiting = False
        self._count -= 1
        self.tokens -= entry.tokens

    def tokens_before(self, tag: float) -> int:
        """Tokens of the waiting texts that are served up to ``tag``."""
        return sum(entry.tokens for entry in self._heap if entry.waiting and entry.tag <= tag)
