"""The open loop: requests are sent when they are due, whether or not earlier ones are answered.

Real clients do not wait for each other. A closed loop does: its users stand still with a server that stands still, and
so the time that others would have waited is in no statistic (coordinated omission). Here a latency counts from the
moment when the request was due, and what the generator sends late is in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, events, task
from locust.exception import StopUser

from loadtests.recorder import Recorder, install, wake_clock

SPIN_S = 0.001
"""Timers fire up to a millisecond late; the last one before a request is due is waited for in a loop."""


@events.init.add_listener  # type: ignore[untyped-decorator]
def _install(environment: Any, **_: Any) -> None:
    schedule = json.loads(Path(os.environ["ROBAL_LOADTEST_SCHEDULE"]).read_text())
    install(environment)
    environment.schedule = schedule


class Arrivals(FastHttpUser):  # type: ignore[misc]
    """The one user of an open loop; its requests run beside each other on a pool of connections."""

    network_timeout = 60.0
    connection_timeout = 10.0

    def __init__(self, environment: Any) -> None:
        self.concurrency = int(os.environ["ROBAL_LOADTEST_IN_FLIGHT"])  # its client is made next
        super().__init__(environment)

    @task  # type: ignore[untyped-decorator]
    def arrive(self) -> None:
        """Send everything that is due, then wait for the end."""
        recorder: Recorder = self.environment.recorder
        recorder.go.wait()
        wake_clock()
        for due_s in self.environment.schedule[recorder.share :: recorder.shares]:
            while (wait_s := due_s - recorder.now_s()) > 0:
                gevent.sleep(max(0.0, wait_s - SPIN_S))
            if recorder.ended.is_set():
                raise StopUser
            if len(recorder.arrivals) >= self.concurrency:
                recorder.drop(due_s)
            else:
                recorder.arrivals.spawn(recorder.send, self.client, due_s, (recorder.now_s() - due_s) * 1000)
        recorder.ended.wait()
        raise StopUser
