"""Batches over concurrent requests, bounded in tokens.

Pure asyncio: it knows neither HTTP nor ONNX. The engine is one coroutine function from encoded texts to logits; as
many calls as it has instances are in flight, and everything that arrives meanwhile can share the next one. Nothing
waits for a window to close: with an idle engine a lone text starts at once.

- A batch is what the fair queue says is next, up to a budget of tokens, because tokens are what the engine needs time
  for. When several instances are idle, the waiting texts are divided between them.
- The queue is bounded in tokens. A request whose deadline cannot be met, as far as the calls so far tell, is refused
  when it arrives; one whose deadline passes while it waits is answered so, and nothing is computed for it.
- Each text stands alone: a batch that fails is halved and tried again, until only the texts that fail alone are
  answered with the failure, and their neighbours in the same request with logits. Whoever was accepted is answered.
- A text whose caller has gone leaves the queue at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from contract.encoding import EncodedText
from contract.errors import DeadlineExceeded, EngineFailure, EngineStuck, Overloaded, TooLarge, Unavailable
from service.cost import CostModel
from service.engine import Logits
from service.fair_queue import Entry, FairQueue, Flow

Run: TypeAlias = Callable[[Sequence[EncodedText]], Awaitable[Logits]]
"""Encoded texts to logits (batch, labels)."""

LONGEST_RETRY_AFTER_S = 60.0
SMALLEST_SHARE = 64
"""Tokens below which dividing work between instances costs more than it gains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the scheduler may hold and send at once."""

    max_batch_tokens: int
    """Tokens of one engine call; a single longer text goes alone."""
    max_batch_items: int
    """Texts of one engine call."""
    max_queue_tokens: int
    """Tokens that may wait; more is refused."""


class Observer(Protocol):
    """Hears what happens; the service turns it into metrics."""

    def queue_changed(self, tokens: int) -> None:
        """The number of waiting tokens is now ``tokens``."""

    def batch_done(self, lengths: Sequence[int], seconds: float) -> None:
        """The engine was called for texts of these lengths."""

    def batch_failed(self) -> None:
        """An engine call ended without usable logits."""

    def deadline_missed(self, texts: int) -> None:
        """Texts were answered with DeadlineExceeded instead of being computed."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The engine's answer to one request."""

    rows: tuple[Logits | EngineFailure, ...]
    """For each text, in their order: its logits (labels,), or why there are none."""
    queue_s: float
    """Time in which none of the request's texts was in the engine."""
    engine_s: float
    """Time in which at least one was."""

    @property
    def logits(self) -> Logits:
        """(texts, labels). Raises the first EngineFailure if a text has none."""
        rows = []
        for row in self.rows:
            if isinstance(row, EngineFailure):
                raise row
            rows.append(row)
        return np.stack(rows)


@dataclass(eq=False, slots=True)
class _Ticket:
    """One request: its texts may end up in several batches, also at the same time."""

    engine_s: float = 0.0
    running: int = 0
    since: float = 0.0


@dataclass(eq=False, slots=True)
class _Item:
    """One text."""

    encoded: EncodedText
    ticket: _Ticket
    answer: asyncio.Future[Logits | EngineFailure] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def length(self) -> int:
        return len(self.encoded.input_ids)


class Scheduler:
    """Collects texts of concurrent requests into batches for one engine.

    Args:
        run: the engine; whatever it raises costs only the text that causes it.
        limits: sizes of a batch and of the queue.
        observer: hears about the queue and about batches.
        instances: engine calls that may be in flight at once.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        run: Run,
        *,
        limits: Limits,
        observer: Observer,
        instances: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._run = run
        self._observer = observer
        self._instances = instances
        self._clock = clock
        self._queue: FairQueue[_Item] = FairQueue()
        self._cost = CostModel()
        self._calls: set[asyncio.Task[None]] = set()
        self._computing_tokens = 0
        self._dispatching = False
        self._closed = False

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait."""
        return self._queue.tokens

    async def submit(
        self, encoded: Sequence[EncodedText], *, timeout_s: float | None = None, weight: float = 1.0
    ) -> Computed:
        """Compute the texts of one request; ends when all are answered. One that cannot be computed costs only itself.

        Args:
            encoded: the texts.
            timeout_s: how long the caller can wait; None: as long as it takes.
            weight: share of the engine, relative to the other requests that wait.

        Raises:
            TooLarge: the request alone exceeds the queue, so that another try cannot help.
            Overloaded: no room in the queue now.
            DeadlineExceeded: the answer would come too late.
            Unavailable: the scheduler is closed.
        """
        started = self._clock()
        self._check_room(sum(len(item.input_ids) for item in encoded))
        ticket = _Ticket()
        entries = self._admit(encoded, ticket, Flow(weight), timeout_s)
        if not self._dispatching:  # at the end of this turn of the loop: what arrives in one turn shares a batch
            self._dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                rows = await asyncio.gather(*(entry.payload.answer for entry in entries))
        except TimeoutError:
            if not limit.expired():
                raise
            self._observer.deadline_missed(len(entries))
            raise DeadlineExceeded("the time that the request allows passed before its answer was there.") from None
        finally:
            for entry in entries:
                self._withdraw(entry)
        elapsed = self._clock() - started
        return Computed(tuple(rows), max(elapsed - ticket.engine_s, 0.0), ticket.engine_s)

    async def close(self) -> None:
        """Accept nothing more and return when everything accepted is answered."""
        self._closed = True
        self._dispatch()
        while self._calls:
            await asyncio.wait(self._calls)
            await asyncio.sleep(0)  # lets the call after it start

    def _check_room(self, tokens: int) -> None:
        limit = self.limits.max_queue_tokens
        if self._closed:
            raise Unavailable("the service is stopping; send the request to another instance.")
        if tokens > limit:
            raise TooLarge(
                f"the request has {tokens} tokens and the queue holds {limit}; send fewer texts at once.",
                field="inputs",
            )
        if self.queued_tokens + tokens > limit:
            wait_s = self._cost.seconds(self.queued_tokens) / self._instances
            raise Overloaded(
                f"the queue is full ({self.queued_tokens} of {limit} tokens); try again after the time in Retry-After.",
                retry_after_s=min(max(wait_s, 1.0), LONGEST_RETRY_AFTER_S),
            )

    def _admit(
        self, encoded: Sequence[EncodedText], ticket: _Ticket, flow: Flow, timeout_s: float | None
    ) -> list[Entry[_Item]]:
        """Queue the texts, unless the last of them cannot be done in time."""
        entries = [self._queue.push(_Item(item, ticket), tokens=len(item.input_ids), flow=flow) for item in encoded]
        if timeout_s is not None and entries:
            ahead = self._queue.tokens_before(entries[-1].tag) + self._computing_tokens
            wait_s = self._cost.seconds(ahead) / self._instances
            if wait_s > timeout_s:
                for entry in entries:
                    self._queue.remove(entry)
                self._observer.deadline_missed(len(entries))
                raise DeadlineExceeded(
                    f"the answer would take about {wait_s * 1e3:.0f} ms, which is more than the request allows; "
                    "allow more time, send fewer texts, or try again later."
                )
        self._observer.queue_changed(self.queued_tokens)
        return entries

    def _withdraw(self, entry: Entry[_Item]) -> None:
        """Take a text out of the queue, if it still is there."""
        entry.payload.answer.cancel()
        if entry.waiting:
            self._queue.remove(entry)
            self._observer.queue_changed(self.queued_tokens)

    def _dispatch(self) -> None:
        """Start a call for each idle instance while texts wait."""
        self._dispatching = False
        while len(self._queue) and len(self._calls) < self._instances:
            share = -(-self._queue.tokens // (self._instances - len(self._calls)))
            taken = self._queue.take(
                max_tokens=min(self.limits.max_batch_tokens, max(share, SMALLEST_SHARE)),
                max_items=self.limits.max_batch_items,
            )
            self._observer.queue_changed(self.queued_tokens)
            if batch := [item for item in taken if not item.answer.done()]:  # done: its caller has gone
                call = asyncio.create_task(self._call(batch))
                self._calls.add(call)
                call.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: Sequence[_Item], call: asyncio.Task[None]) -> None:
        """After each call: whatever ended it, nobody is left waiting and the next one starts."""
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if error is not None:  # a defect outside of the engine
            asyncio.get_running_loop().call_exception_handler({"message": "a batch was lost", "exception": error})
        for item in batch:
            self._settle(item, EngineFailure("the scheduler ended before the text was computed."))
        self._dispatch()

    async def _call(self, batch: list[_Item]) -> None:
        """One place in the engine: a batch, and its halves if it fails."""
        tickets = {item.ticket for item in batch}
        tokens = sum(item.length for item in batch)
        started = self._clock()
        for ticket in tickets:
            ticket.running += 1
            if ticket.running == 1:
                ticket.since = started
        self._computing_tokens += tokens
        try:
            logits = np.asarray(await self._run([item.encoded for item in batch]))
            if logits.ndim != 2 or len(logits) != len(batch):
                raise EngineFailure(f"the engine gave logits {logits.shape} for {len(batch)} texts.")
            failure = None
        except Exception as error:  # anything an engine may raise: it must not reach the neighbours
            failure = error
        finally:
            ended = self._clock()
            self._computing_tokens -= tokens
            for ticket in tickets:
                ticket.running -= 1
                if ticket.running == 0:
                    ticket.engine_s += ended - ticket.since
        if failure is not None:
            self._observer.batch_failed()
            if len(batch) == 1 or isinstance(failure, EngineStuck):  # halves of it would be as stuck, one by one
                for item in batch:
                    self._settle(item, failure)
                return
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                if wanted := [item for item in half if not item.answer.done()]:
                    await self._call(wanted)
            return
        self._cost.observe(tokens, ended - started)
        self._observer.batch_done([item.length for item in batch], ended - started)
        for item, row in zip(batch, logits, strict=True):
            if np.isfinite(row).all():
                self._settle(item, row)
            else:
                self._observer.batch_failed()
                self._settle(item, EngineFailure("the engine gave a logit that is not a finite number."))

    @staticmethod
    def _settle(item: _Item, answer: Logits | Exception) -> None:
        if item.answer.done():  # its caller has gone
            return
        if isinstance(answer, Exception) and not isinstance(answer, EngineFailure):
            failure = EngineFailure(f"the engine raised {type(answer).__name__}.")
            failure.__cause__ = answer
            answer = failure
        item.answer.set_result(answer)
