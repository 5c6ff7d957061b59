"""The closed loop: N users who each send the next text as soon as the last one is answered.

An ordinary Locust file, also with Locust's web interface, against any running robal service:

    locust -f loadtests/locustfile.py --host http://127.0.0.1:3000

This module, ``openloop.py`` and ``recorder.py`` are the only ones that import Locust, which patches the standard
library; they run in processes of their own.
"""

from __future__ import annotations

from typing import Any

import gevent
from locust import FastHttpUser, events, task

from loadtests.recorder import Recorder, install

PAUSE_AFTER_FAILURE_S = 0.1
"""Users of a refusing or dead server wait; otherwise they would spin and measure only themselves."""


@events.init.add_listener  # type: ignore[untyped-decorator]
def _install(environment: Any, **_: Any) -> None:
    install(environment)


class ClassifyUser(FastHttpUser):  # type: ignore[misc]
    """Sends one text, waits for the answer, sends the next."""

    network_timeout = 60.0
    connection_timeout = 10.0

    def on_start(self) -> None:
        """The user is free from now on."""
        recorder: Recorder = self.environment.recorder
        recorder.go.wait()
        self.free_at_s = recorder.now_s()

    @task  # type: ignore[untyped-decorator]
    def classify(self) -> None:
        """One request and its record."""
        recorder: Recorder = self.environment.recorder
        now_s = recorder.now_s()
        right, self.free_at_s = recorder.send(self.client, now_s, (now_s - self.free_at_s) * 1000)
        if not right:
            gevent.sleep(PAUSE_AFTER_FAILURE_S)
            self.free_at_s = recorder.now_s()
