"""Batches over concurrent requests, bounded in tokens.

Pure asyncio: it knows neither HTTP nor ONNX. The engine is one coroutine function from encoded texts to logits, and
one batch is in flight at a time, so that everything that arrives meanwhile can share the next one. Nothing waits
for a window to close: with an idle engine a lone text starts at once.

- A batch starts with the text that has waited longest and takes the waiting texts nearest to it in length, as long
  as the padded size stays within the budget and the padding itself stays small. On a CPU a padded position costs
  as much as a real one, so a batch that pads a lot is slower than two that do not.
- The queue is bounded in tokens, because tokens are what the engine needs time for.
- Each text stands alone: when a batch fails, its texts are tried again one by one, and only those that fail alone
  are answered with the failure. Whoever was accepted is answered.
- A text whose caller has gone leaves the queue at once.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.encoding import EncodedText
from contract.errors import EngineFailure, Overloaded, TooLarge, Unavailable

Logits: TypeAlias = npt.NDArray[np.float32]
Run: TypeAlias = Callable[[Sequence[EncodedText]], Awaitable[Logits]]
"""Encoded texts to logits (batch, labels)."""

MAX_PADDING_SHARE = 0.25
"""Most of a batch that may be padding; a batch also may hold ``FREE_PADDING`` padded positions in any case."""
FREE_PADDING = 32
"""Padded positions that cost less than another engine call."""
LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the scheduler may hold and send at once."""

    max_batch_tokens: int
    """Positions of one batch, padding included."""
    max_batch_items: int
    """Texts of one batch."""
    max_queue_tokens: int
    """Tokens that may wait; more is refused."""


class Observer(Protocol):
    """Hears what happens; the service turns it into metrics."""

    def queue_changed(self, tokens: int) -> None:
        """The number of waiting tokens is now ``tokens``."""

    def batch_done(self, items: int, tokens: int, positions: int, seconds: float) -> None:
        """The engine was called for ``items`` texts of together ``tokens`` tokens in ``positions`` positions."""

    def batch_failed(self) -> None:
        """An engine call ended without usable logits."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The engine's answer to one request."""

    logits: Logits
    """(batch, labels) in the order of the texts."""
    queue_s: float
    """Time in which none of the request's texts was in the engine."""
    engine_s: float
    """Time of the engine calls that held a text of the request."""


@dataclass(eq=False, slots=True)
class _Ticket:
    """One request: its texts may end up in several batches."""

    engine_s: float = 0.0


@dataclass(eq=False, slots=True)
class _Item:
    """One waiting text."""

    order: int
    encoded: EncodedText
    ticket: _Ticket
    answer: asyncio.Future[Logits] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def length(self) -> int:
        return len(self.encoded.input_ids)


class Scheduler:
    """Collects texts of concurrent requests into batches for one engine.

    Args:
        run: the engine; whatever it raises costs only the text that causes it.
        limits: sizes of a batch and of the queue.
        observer: hears about the queue and about batches.
        clock: seconds, monotonic.
    """

    def __init__(
        self, run: Run, *, limits: Limits, observer: Observer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.queued_tokens = 0
        self._run = run
        self._observer = observer
        self._clock = clock
        self._arrivals = 0
        self._waiting: OrderedDict[int, _Item] = OrderedDict()  # by arrival
        self._by_length: list[tuple[int, int]] = []  # (length, arrival), sorted
        self._in_flight: list[_Item] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._seconds_per_token: float | None = None

    async def submit(self, encoded: Sequence[EncodedText]) -> Computed:
        """Compute the texts of one request; ends when all are answered, or at the first that cannot be.

        Raises:
            TooLarge: the request alone exceeds the queue, so that another try cannot help.
            Overloaded: no room in the queue now.
            Unavailable: the scheduler is closed.
            EngineFailure: the engine could not compute one of the texts.
        """
        started = self._clock()
        ticket = _Ticket()
        items = self._admit(encoded, ticket)
        try:
            rows = await asyncio.gather(*(item.answer for item in items))
        finally:
            for item in items:
                self._withdraw(item)
        elapsed = self._clock() - started
        return Computed(np.stack(rows), max(elapsed - ticket.engine_s, 0.0), ticket.engine_s)

    async def close(self) -> None:
        """Accept nothing more and return when everything accepted is answered."""
        self._closed = True
        if self._worker is not None:
            await self._worker

    def _admit(self, encoded: Sequence[EncodedText], ticket: _Ticket) -> list[_Item]:
        tokens = sum(len(item.input_ids) for item in encoded)
        limit = self.limits.max_queue_tokens
        if self._closed:
            raise Unavailable("the service is stopping; send the request to another instance.")
        if tokens > limit:
            raise TooLarge(
                f"the request has {tokens} tokens and the queue holds {limit}; send fewer texts at once.",
                field="inputs",
            )
        if self.queued_tokens + tokens > limit:
            raise Overloaded(
                f"the queue is full ({self.queued_tokens} of {limit} tokens); try again after the time in Retry-After.",
                retry_after_s=self._retry_after_s(),
            )
        items = []
        for item in encoded:
            self._arrivals += 1
            items.append(_Item(self._arrivals, item, ticket))
            self._waiting[self._arrivals] = items[-1]
            insort(self._by_length, (items[-1].length, self._arrivals))
        self._count(tokens)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return items

    def _withdraw(self, item: _Item) -> None:
        """Take a text out of the queue, if it still is there."""
        item.answer.cancel()
        if item.answer.done() and not item.answer.cancelled():
            item.answer.exception()  # marks it as seen: another text of the request already failed
        if self._waiting.pop(item.order, None) is not None:
            del self._by_length[bisect_left(self._by_length, (item.length, item.order))]
            self._count(-item.length)

    def _count(self, tokens: int) -> None:
        self.queued_tokens += tokens
        self._observer.queue_changed(self.queued_tokens)

    def _retry_after_s(self) -> float:
        """When the queue will have been worked off, as far as the recent speed tells."""
        return min(max(self.queued_tokens * (self._seconds_per_token or 0.0), 1.0), LONGEST_RETRY_AFTER_S)

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._in_flight = [item for item in self._take() if not item.answer.done()]  # done: its caller has gone
                if self._in_flight:
                    await self._compute(self._in_flight)
        finally:
            self._worker = None  # here and not in a callback: whoever comes next must see that nobody works
            for item in [*self._in_flight, *self._waiting.values()]:  # none, unless the loop ends or a defect is above
                self._settle(item, EngineFailure("the scheduler ended before the text was computed."))
                self._withdraw(item)

    def _take(self) -> list[_Item]:
        """Remove the next batch from the queue: the oldest text and its neighbours in length."""
        head = next(iter(self._waiting.values()))
        place = bisect_left(self._by_length, (head.length, head.order))
        low, high = place, place + 1  # the batch is by_length[low:high]
        longest, total = head.length, head.length
        shorter, longer = True, True
        while (shorter or longer) and high - low < self.limits.max_batch_items:
            below = self._by_length[low - 1][0] if shorter and low > 0 else None
            above = self._by_length[high][0] if longer and high < len(self._by_length) else None
            if below is None and above is None:
                break
            upwards = below is None or (above is not None and above - head.length < head.length - below)
            candidate = above if upwards else below
            assert candidate is not None
            positions = (high - low + 1) * max(longest, candidate)
            padding = positions - total - candidate
            fits = positions <= self.limits.max_batch_tokens and padding <= max(
                FREE_PADDING, MAX_PADDING_SHARE * positions
            )
            if not fits:  # whatever lies further away in this direction fits less
                shorter, longer = (shorter, False) if upwards else (False, longer)
                continue
            low, high = (low, high + 1) if upwards else (low - 1, high)
            longest, total = max(longest, candidate), total + candidate
        batch = [self._waiting.pop(order) for _, order in self._by_length[low:high]]
        del self._by_length[low:high]
        self._count(-total)
        return batch

    async def _compute(self, batch: list[_Item]) -> None:
        started = self._clock()
        encoded = [item.encoded for item in batch]
        try:
            logits = np.asarray(await self._run(encoded))
            if logits.ndim != 2 or len(logits) != len(batch):
                raise EngineFailure(f"the engine gave logits {logits.shape} for {len(batch)} texts.")
        except Exception as error:  # anything an engine may raise: it must not reach the neighbours
            self._observer.batch_failed()
            self._charge(batch, started)
            if len(batch) == 1:
                self._settle(batch[0], error)
                return
            for item in batch:
                if not item.answer.done():
                    await self._compute([item])
            return
        seconds = self._charge(batch, started)
        tokens = sum(item.length for item in batch)
        positions = len(batch) * max(item.length for item in batch)
        self._observer.batch_done(len(batch), tokens, positions, seconds)
        speed = seconds / positions
        self._seconds_per_token = (
            speed if self._seconds_per_token is None else (4 * self._seconds_per_token + speed) / 5
        )
        for item, row in zip(batch, logits, strict=True):
            if np.isfinite(row).all():
                self._settle(item, row)
            else:
                self._observer.batch_failed()
                self._settle(item, EngineFailure("the engine gave a logit that is not a finite number."))

    def _charge(self, batch: Sequence[_Item], started: float) -> float:
        """Book the engine's time on each request that had a text in the batch, once."""
        seconds = self._clock() - started
        for ticket in {item.ticket for item in batch}:
            ticket.engine_s += seconds
        return seconds

    @staticmethod
    def _settle(item: _Item, answer: Logits | Exception) -> None:
        if item.answer.done():  # its caller has gone
            return
        if isinstance(answer, EngineFailure):
            item.answer.set_exception(answer)
        elif isinstance(answer, Exception):
            failure = EngineFailure(f"the engine raised {type(answer).__name__}.")
            failure.__cause__ = answer
            item.answer.set_exception(failure)
        else:
            item.answer.set_result(answer)
