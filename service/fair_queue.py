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
    """Waiting texts; ``len`` is their number and ``tokens`` their size."""

    def __init__(self) -> None:
        self.tokens = 0
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
            if entry.waiting:
                tokens += entry.tokens
                if taken and tokens > max_tokens:
                    break
                self._now = entry.tag
                self.remove(entry)
                taken.append(entry.payload)
            heapq.heappop(self._heap)
        return taken

    def remove(self, entry: Entry[T]) -> None:
        """Take one text out; its place in the heap is cleared when it is reached."""
        if entry.waiting:
            entry.waiting = False
            self._count -= 1
            self.tokens -= entry.tokens

    def tokens_before(self, tag: float) -> int:
        """Tokens of the waiting texts that are served up to ``tag``."""
        return sum(entry.tokens for entry in self._heap if entry.waiting and entry.tag <= tag)
