"""The load generator: N users who each send the next text as soon as the last one is answered (a closed loop).

The only module that imports Locust, which patches the standard library; it runs in a process of its own. The driver
starts it, but it is an ordinary Locust file:

    locust -f loadtests/locustfile.py --host http://127.0.0.1:3000

Locust's own statistics round times before it takes percentiles. So each request is also written, unrounded, as one
JSON line to the file that ``ROBAL_LOADTEST_RECORDS`` names: when it was sent, its latency, what the answer was worth,
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
from locust import FastHttpUser, events, task
from locust.exception import StopUser

from loadtests.answers import check_answer
from loadtests.payloads import DEFAULT_COUNT, Payload, load_payloads, payloads, synthetic_texts

HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
STAGES = ("x-tokenize-ms", "x-queue-ms", "x-engine-ms", "x-total-ms")
PROBE_S = 0.02
PAUSE_AFTER_FAILURE_S = 0.1
"""Users of a refusing or dead server wait; otherwise they would spin and measure only themselves."""


class Recorder:
    """The traffic of one test and the file that its requests are written to."""

    def __init__(self, runner: Any, traffic: Sequence[Payload], settings: Mapping[str, str]) -> None:
        offset = int(settings.get("ROBAL_LOADTEST_OFFSET", 0)) % len(traffic)
        self.traffic = itertools.islice(itertools.cycle(enumerate(traffic)), offset, None)
        self.runner = runner
        self.after_ready_s = float(settings.get("ROBAL_LOADTEST_SECONDS", "inf"))
        self.left = float(settings.get("ROBAL_LOADTEST_MAX_REQUESTS", "inf"))
        records = Path(settings.get("ROBAL_LOADTEST_RECORDS", os.devnull))
        self.file = records.open("w", encoding="utf-8")
        self.started = time.perf_counter()
        self.stopping = False
        self.write(event="start", at_s=0.0, cpu_s=time.process_time())
        self.prober = gevent.spawn(self.probe)

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

    def ready(self) -> None:
        """All users are there: the measured time can be counted from here."""
        self.write(event="ready", at_s=self.now_s(), cpu_s=time.process_time())
        if self.after_ready_s != float("inf"):
            _wake_clock()
            gevent.spawn_later(self.after_ready_s, self.stop)

    def stop(self) -> None:
        """Let every user finish the request it waits for, then end the test. Cutting them off would hide slow ones."""
        if not self.stopping:
            self.stopping = True
            self.write(event="stop", at_s=self.now_s(), cpu_s=time.process_time())
            gevent.spawn(self.runner.quit)

    def close(self) -> None:
        """The last request is answered."""
        self.prober.kill()
        self.write(event="end", at_s=self.now_s(), cpu_s=time.process_time())
        self.file.close()


@events.init.add_listener  # type: ignore[untyped-decorator]
def _install(environment: Any, **_: Any) -> None:
    """Read the traffic, then make a fresh recorder for each test: the web interface can start several."""
    source = os.environ.get("ROBAL_LOADTEST_PAYLOADS")
    try:
        traffic = load_payloads(Path(source)) if source else payloads(synthetic_texts(DEFAULT_COUNT, seed=0))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"the payloads {source} cannot be read ({error!r})")  # Locust swallows ordinary errors of listeners

    def start(**_: Any) -> None:
        environment.recorder = Recorder(environment.runner, traffic, os.environ)

    _wake_clock()

    environment.events.test_start.add_listener(start)
    environment.events.spawning_complete.add_listener(lambda **_: environment.recorder.ready())
    environment.events.test_stop.add_listener(lambda **_: environment.recorder.close())


def _wake_clock() -> None:
    """Timers start from the moment when the event loop last looked at the clock, which may be a second ago."""
    gevent.get_hub().loop.update_now()


class ClassifyUser(FastHttpUser):  # type: ignore[misc]
    """Sends one text, waits for the answer, sends the next."""

    network_timeout = 60.0
    connection_timeout = 10.0

    def on_start(self) -> None:
        """The user is free from now on."""
        self.free_at_s = self.environment.recorder.now_s()

    @task  # type: ignore[untyped-decorator]
    def classify(self) -> None:
        """One request and its record. The answer is judged after its time was taken."""
        recorder: Recorder = self.environment.recorder
        index, payload = recorder.take()
        sent_s = recorder.now_s()
        with self.client.post("/classify", data=payload.body, headers=HEADERS, catch_response=True) as response:
            latency_ms = response.request_meta["response_time"]
            answer = check_answer(response.status_code, response.content or b"", payload.texts)
            if answer.outcome == "ok":
                response.success()
            else:
                response.failure(answer.problem)
        headers = response.headers or {}
        recorder.write(
            index=index,
            sent_s=sent_s,
            late_ms=(sent_s - self.free_at_s) * 1000,
            latency_ms=latency_ms,
            status=response.status_code,
            outcome=answer.outcome,
            problem=answer.problem,
            texts=payload.texts,
            characters=payload.characters,
            tokens=answer.tokens,
            stages_ms={name[2:-3]: float(headers[name]) for name in STAGES if name in headers},
        )
        self.free_at_s = sent_s + latency_ms / 1000
        if answer.outcome != "ok":
            gevent.sleep(PAUSE_AFTER_FAILURE_S)
            self.free_at_s = recorder.now_s()
