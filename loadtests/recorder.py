"""What the generator's processes share with each other and with their driver: traffic, start, stop, and the records.

Locust's own statistics round times before it takes percentiles. So each request is also written, unrounded, as one
JSON line to the file that ``ROBAL_LOADTEST_RECORDS`` names: when it was due, its latency, what the answer was worth,
and the stage times that the server reports. Between them stand probes of the generator itself (its processor time and
how late its own timers fire), because a busy generator measures itself and not the server.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import gevent.pool
from locust.exception import StopUser

from loadtests.payloads import DEFAULT_COUNT, Payload, load_payloads, payloads, synthetic_texts
from loadtests.protocols import protocol

STAGES = ("x-tokenize-ms", "x-queue-ms", "x-engine-ms", "x-total-ms")
PROBE_S = 0.02
GO_POLL_S = 0.01
LAST_ANSWER_S = 60.0
"""Most time that arrivals may wait for their answers after the end."""


class Recorder:
    """The traffic of one test and the file that its requests are written to.

    A test that a driver starts waits, with all users there, until the driver has seen all its processes wait; then
    they begin at one moment of the machine's clock. A test that a person starts begins at once.
    """

    def __init__(self, runner: Any, traffic: Sequence[Payload], settings: Mapping[str, str]) -> None:
        self.share, self.shares = map(int, settings.get("ROBAL_LOADTEST_SHARE", "0/1").split("/"))
        offset = int(settings.get("ROBAL_LOADTEST_OFFSET", 0)) % len(traffic) + self.share
        self.traffic = itertools.islice(itertools.cycle(enumerate(traffic)), offset, None, self.shares)
        self.protocol = protocol(
            settings.get("ROBAL_LOADTEST_PROTOCOL", "robal"), model=settings.get("ROBAL_LOADTEST_MODEL")
        )
        self.runner = runner
        self.seconds = float(settings.get("ROBAL_LOADTEST_SECONDS", "inf"))
        self.left = float(settings.get("ROBAL_LOADTEST_MAX_REQUESTS", "inf"))
        self.file = Path(settings.get("ROBAL_LOADTEST_RECORDS", os.devnull)).open("w")  # noqa: SIM115 (see close)
        self.go = gevent.event.Event()
        self.arrivals = gevent.pool.Group()
        """Requests of an open loop that are on their way."""
        self.ended = gevent.event.Event()
        self.prober: gevent.Greenlet | None = None
        self.go_file = Path(settings["ROBAL_LOADTEST_GO"]) if "ROBAL_LOADTEST_GO" in settings else None
        if self.go_file is None:
            self.begin(time.perf_counter())

    def begin(self, origin: float) -> None:
        """Users may send from now on; ``origin`` is zero on the clock of all records."""
        self.started = origin
        self.prober = gevent.spawn(self.probe)
        self.go.set()

    def ready(self) -> None:
        """All users are there: the measured time can be counted from here."""
        if self.go_file is not None:
            Path(f"{self.go_file}.{self.share}").touch()
            while not self.go_file.exists():
                gevent.sleep(GO_POLL_S)
            origin = float(self.go_file.read_text())
            gevent.sleep(max(0.0, origin - time.perf_counter()))
            self.begin(origin)
        self.write(event="ready", at_s=0.0 if self.go_file else self.now_s(), cpu_s=time.process_time())
        if self.seconds != float("inf"):
            wake_clock()
            gevent.spawn_later(self.seconds, self.stop)

    def write(self, **fields: Any) -> None:
        """Append one record."""
        self.file.write(json.dumps(fields) + "\n")

    def take(self) -> tuple[int, Payload]:
        """The next request and its place in the traffic, which all users share; after the last one the test ends."""
        if self.left <= 0:
            self.stop()
            raise StopUser
        self.left -= 1
        return next(self.traffic)

    def now_s(self) -> float:
        """Seconds since the test began, on the clock of all records."""
        return time.perf_counter() - self.started

    def probe(self) -> None:
        """Watch the generator: processor seconds, and how late a timer of 20 ms fires."""
        while True:
            before = time.perf_counter()
            gevent.sleep(PROBE_S)
            late_ms = (time.perf_counter() - before - PROBE_S) * 1000
            self.write(event="probe", at_s=self.now_s(), late_ms=late_ms, cpu_s=time.process_time())

    def drop(self, due_s: float) -> None:
        """An arrival that found as many requests open as the generator may have."""
        index, payload = self.take()
        self.write(
            index=index,
            sent_s=due_s,
            late_ms=0.0,
            latency_ms=0.0,
            status=0,
            outcome="dropped",
            problem="too many in flight",
            texts=payload.texts,
            characters=payload.characters,
            tokens=0,
        )

    def send(self, client: Any, due_s: float, late_ms: float) -> tuple[bool, float]:
        """One request and its record; whether the answer was right, and when it was there.

        Args:
            client: of a Locust user.
            due_s: from when its latency counts.
            late_ms: for the generator's health.
        """
        index, payload = self.take()
        sent_s = self.now_s()
        asked = self.protocol
        with client.post(asked.path, data=payload.body, headers=asked.headers, catch_response=True) as response:
            latency_ms = response.request_meta["response_time"] + (sent_s - due_s) * 1000
            answer = asked.judge(response.status_code, response.content or b"", payload.texts, payload.labels)
            if answer.outcome == "ok":
                response.success()
            else:
                response.failure(answer.problem)
        headers = response.headers or {}
        self.write(
            index=index,
            sent_s=due_s,
            late_ms=late_ms,
            latency_ms=latency_ms,
            status=response.status_code,
            outcome=answer.outcome,
            problem=answer.problem,
            texts=payload.texts,
            characters=payload.characters,
            tokens=answer.tokens,
            mislabelled=answer.mislabelled,
            stages_ms={name[2:-3]: float(headers[name]) for name in STAGES if name in headers},
        )
        return answer.outcome == "ok", due_s + latency_ms / 1000

    def stop(self) -> None:
        """Let every user finish the request it waits for, then end the test. Cutting them off would hide slow ones."""
        if not self.ended.is_set():
            self.ended.set()
            self.write(event="stop", at_s=self.now_s(), cpu_s=time.process_time())
            gevent.spawn(self._quit)

    def _quit(self) -> None:
        self.arrivals.join(timeout=LAST_ANSWER_S)
        self.runner.quit()

    def close(self) -> None:
        """The last request is answered."""
        if self.prober is not None:
            self.prober.kill()
        self.write(event="end", at_s=self.now_s(), cpu_s=time.process_time())
        self.file.close()


def install(environment: Any) -> None:
    """Read the traffic, then make a fresh recorder for each test: the web interface can start several."""
    source = os.environ.get("ROBAL_LOADTEST_PAYLOADS")
    try:
        traffic = load_payloads(Path(source)) if source else payloads(synthetic_texts(DEFAULT_COUNT, seed=0))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"the payloads {source} cannot be read ({error!r})")  # Locust swallows ordinary errors of listeners

    def start(**_: Any) -> None:
        environment.recorder = Recorder(environment.runner, traffic, os.environ)

    wake_clock()
    environment.events.test_start.add_listener(start)
    environment.events.spawning_complete.add_listener(lambda **_: gevent.spawn(environment.recorder.ready))
    environment.events.test_stop.add_listener(lambda **_: environment.recorder.close())


def wake_clock() -> None:
    """Timers start from the moment when the event loop last looked at the clock, which may be a second ago."""
    gevent.get_hub().loop.update_now()
