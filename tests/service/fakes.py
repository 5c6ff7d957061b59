"""An event loop with its own clock, and an engine without a model."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from contract.encoding import EncodedText
from service.scheduler import Limits, Scheduler

BROKEN, NAN = 7_001, 7_002
"""Token ids that make the fake engine raise, or compute NaN for that text."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can run, and then jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(selectors.SelectSelector())

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_virtually(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """``asyncio.run`` on a virtual loop; a test that waits for nothing ends at once instead of hanging."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main(), 1e6))
    finally:
        loop.close()


def text(length: int, number: int = 0, special: int | None = None) -> EncodedText:
    """A text of ``length`` tokens whose first id is its number, so that its logits can be recognised."""
    ids = np.full(length, 3, np.int64)
    ids[0] = number
    if special is not None:
        ids[-1] = special
    return EncodedText(ids, np.zeros_like(ids), length)


class FakeEngine:
    """Logits are (number, length) of each text. A call takes ``overhead`` + ``per_token`` x tokens."""

    def __init__(self, *, overhead: float = 1.0, per_token: float = 0.01) -> None:
        self.overhead = overhead
        self.per_token = per_token
        self.batches: list[list[EncodedText]] = []
        self.started: list[float] = []
        self.running = self.most_running = 0

    async def __call__(self, batch: Sequence[EncodedText]) -> np.ndarray:
        self.batches.append(list(batch))
        self.started.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.overhead + self.per_token * tokens(batch))
        finally:
            self.running -= 1
        if any(BROKEN in item.input_ids for item in batch):
            raise RuntimeError("the fake engine broke")
        rows = np.array([[item.input_ids[0], len(item.input_ids)] for item in batch], np.float32)
        rows[[NAN in item.input_ids for item in batch]] = np.nan
        return rows


def tokens(batch: Sequence[EncodedText]) -> int:
    return sum(len(item.input_ids) for item in batch)


class Ledger:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.queue: list[int] = [0]
        self.done: list[tuple[list[int], float]] = []
        self.failures = 0
        self.missed = 0

    def queue_changed(self, tokens: int) -> None:
        self.queue.append(tokens)

    def batch_done(self, lengths: Sequence[int], seconds: float) -> None:
        self.done.append((list(lengths), seconds))

    def batch_failed(self) -> None:
        self.failures += 1

    def deadline_missed(self, texts: int) -> None:
        self.missed += texts


def fake_scheduler(
    engine: Any,
    *,
    batch_tokens: int = 64,
    batch_items: int = 8,
    queue_tokens: int = 1000,
    instances: int = 1,
    ledger: Ledger | None = None,
) -> Scheduler:
    """Call it inside the virtual loop."""
    return Scheduler(
        engine,
        limits=Limits(max_batch_tokens=batch_tokens, max_batch_items=batch_items, max_queue_tokens=queue_tokens),
        observer=ledger or Ledger(),
        instances=instances,
        clock=asyncio.get_running_loop().time,
    )
