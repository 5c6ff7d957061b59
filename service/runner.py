"""A blocking engine, called from the event loop: in threads of its own, and replaced when a call does not come back.

Nothing can stop a thread that is stuck in native code. So it is left behind as a daemon, with the session it holds, and
the service goes on with a fresh one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from contract.encoding import EncodedText
from contract.errors import EngineFailure, EngineStuck, Unavailable
from service.engine import Engine, Logits

logger = logging.getLogger("robal.service")

_Job: TypeAlias = tuple[Sequence[EncodedText], "asyncio.Future[Logits]"]


class _Threads:
    """As many threads as an engine has instances; daemons, so that one that never returns cannot hold the process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        for number in range(engine.instances):
            threading.Thread(target=self._work, name=f"engine-{number}", daemon=True).start()

    def run(self, texts: Sequence[EncodedText]) -> asyncio.Future[Logits]:
        future: asyncio.Future[Logits] = asyncio.get_running_loop().create_future()
        self._jobs.put((texts, future))
        return future

    def stop(self) -> None:
        """End the threads, each after the call it is in."""
        for _ in range(self._engine.instances):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            texts, future = job
            try:
                answer: Logits | Exception = self._engine.run(texts)
            except Exception as error:  # whatever an engine raises belongs to the caller
                answer = error
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, answer)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _settle(future: asyncio.Future[Logits], answer: Logits | Exception) -> None:
    if future.done():  # given up
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


class EngineRunner:
    """Runs an engine, and makes another when a call takes longer than it may.

    Args:
        engine: what computes; closed with the runner.
        make: makes another one; may block.
        timeout_s: longest time of a call.
    """

    def __init__(self, engine: Engine, make: Callable[[], Engine], *, timeout_s: float) -> None:
        self.engine = engine
        self._make = make
        self._timeout_s = timeout_s
        self._threads: _Threads | None = _Threads(engine)
        self._replacing: asyncio.Task[_Threads] | None = None

    def check(self) -> None:
        """Raise Unavailable while there is no engine that computes; if making one has failed, try again."""
        if self._threads is None:
            self._replace()
            raise Unavailable("the engine did not answer and is being replaced; try again in a moment.")

    async def run(self, texts: Sequence[EncodedText]) -> Logits:
        """Logits (texts, labels).

        Raises:
            EngineStuck: it took too long; the engine is being replaced.
            EngineFailure: no new engine could be made.
            Exception: whatever the engine raises.
        """
        threads = self._threads
        if threads is None:
            threads = await asyncio.shield(self._replace())
        try:
            return await asyncio.wait_for(threads.run(texts), self._timeout_s)
        except TimeoutError:
            if threads is self._threads:  # the first of several calls that were stuck together
                logger.error("an engine call took more than %g s; making a new engine", self._timeout_s)
                threads.stop()
                self._threads = None
                self._replace()
            raise EngineStuck(f"the engine did not answer within {self._timeout_s:g} s.") from None

    def _replace(self) -> asyncio.Task[_Threads]:
        if self._replacing is None:
            self._replacing = asyncio.create_task(self._make_threads())
            self._replacing.add_done_callback(self._replaced)
        return self._replacing

    async def _make_threads(self) -> _Threads:
        try:
            engine = await asyncio.to_thread(self._make)
        except Exception as error:  # the border to whatever loading may raise
            raise EngineFailure("no new engine could be made.") from error
        self.engine, self._threads = engine, _Threads(engine)
        return self._threads

    def _replaced(self, task: asyncio.Task[_Threads]) -> None:
        self._replacing = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("%s", error, exc_info=error.__cause__)
        else:
            logger.info("the new engine is ready")

    def close(self) -> None:
        """End the threads and give the memory back; nothing must be running."""
        if self._replacing is not None:
            self._replacing.cancel()
        if self._threads is not None:
            self._threads.stop()
        self.engine.close()
