"""Runs the BentoML server as child processes: waits until it is ready, passes signals on, tells when it fails."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import psutil

from contract.errors import Failure, UsageError
from service.settings import DRAIN_SIGNAL, Settings, available_cpus

ROOT = Path(__file__).parents[1]
"""Where the package ``service`` is found; BentoML's workers start in this folder."""
SPAWN_S = 10.0
"""Longest wait for the worker process to appear."""
WATCH_S = 0.2
"""Time between two looks at the worker."""
GRACE_S = 5.0
"""Time beyond the request timeout that a stop may take."""


def free_address(host: str, port: int) -> tuple[str, int]:
    """The IP address and port to listen on; port 0 becomes a free one.

    Raises:
        UsageError: the host is unknown or not of this machine, or the port is taken or not allowed.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(
            f"--host {host} cannot be resolved ({error.strerror}); 127.0.0.1 serves this machine."
        ) from None
    try:
        with socket.create_server(address[:2], family=family) as probe:
            bound = probe.getsockname()
            return str(bound[0]), int(bound[1])
    except OSError as error:
        reason = {
            errno.EADDRINUSE: f"port {port} on {host} is in use; stop what listens there, or give another --port.",
            errno.EACCES: f"port {port} needs privileges; give a --port above 1023.",
            errno.EADDRNOTAVAIL: f"--host {host} is not an address of this machine; 127.0.0.1 and 0.0.0.0 are.",
        }.get(error.errno or 0, f"cannot listen on {host} port {port} ({error.strerror}).")
        raise UsageError(reason) from None


def serve(settings: Settings, *, address: tuple[str, int], on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was accepted.

    Args:
        settings: go to the worker through the environment.
        address: see ``free_address``.
        on_ready: called once, when requests can be answered.

    Raises:
        Failure: the worker ended before it was ready, or a stop had to be forced.
    """
    stop = threading.Event()

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, ask_to_stop) for number in numbers]
    try:
        with tempfile.TemporaryDirectory(prefix="robal-serve-") as home:
            os.environ.update(_environment(settings, home))
            server = _launch(address, stop)
            if server is None:
                return
            try:
                if _wait_until_ready(address, stop):
                    on_ready()
                _replace_dead_workers(server, stop)
                _drain(stop, settings.drain_s)
            finally:
                _stop(server, stop, patience_s=settings.timeout_s + GRACE_S)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _launch(address: tuple[str, int], stop: threading.Event) -> Any | None:
    """Start BentoML's process manager and its worker; None when asked to stop before.

    The manager would set handlers of its own, which drop a signal that arrives before its event loop runs; and it
    ignores an order to stop that comes before its worker exists. So it sets none, and is left alone until then.
    """
    import bentoml  # after the environment, which it reads
    import circus.controller  # type: ignore[import-untyped]

    if stop.is_set():
        return None
    with mock.patch.object(circus.controller, "SysHandler"):
        server = bentoml.serve("service.app:TextClassifier", working_dir=str(ROOT), host=address[0], port=address[1])
    give_up = time.monotonic() + SPAWN_S
    while not psutil.Process().children():
        if time.monotonic() > give_up:
            raise Failure("the server process did not start.")
        time.sleep(WATCH_S / 10)
    time.sleep(WATCH_S)  # the manager's own book-keeping of the start
    return server


def _environment(settings: Settings, home: str) -> dict[str, str]:
    threads, instances = settings.layout(available_cpus())
    override = {"services": {"text_classifier": {"traffic": {"timeout": settings.timeout_s + GRACE_S}}}}
    return {
        **settings.model_copy(update={"threads": threads, "instances": instances}).to_environment(),
        "BENTOML_HOME": home,  # private: two servers with one home delete each other's files
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_QUIET": "true",
        "BENTOML_CONFIG_OVERRIDES": json.dumps(override),  # its own timeout must never come before ours
        "RAYON_NUM_THREADS": os.environ.get("RAYON_NUM_THREADS", str(threads * instances)),  # of the tokenizers library
    }


def _wait_until_ready(address: tuple[str, int], stop: threading.Event) -> bool:
    """True when the service is ready, False when asked to stop before."""
    workers: set[psutil.Process] = set()
    while not stop.is_set():
        if _is_ready(address):
            return True
        workers.update(psutil.Process().children())
        if any(not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE for worker in workers):
            raise Failure("the server process ended before it was ready; the reason is above.")
        stop.wait(0.05)
    return False


def _replace_dead_workers(server: Any, stop: threading.Event) -> None:
    """Until asked to stop, have a worker that died replaced at once: BentoML's process manager looks every ten seconds.

    The listening socket is this process's, so connections made meanwhile wait for the new worker.
    """
    while not stop.wait(WATCH_S):
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # leaves the rest to the manager
        except ChildProcessError:  # it has none at this moment
            continue
        if dead is not None:
            server.arbiter.loop.add_callback(server.arbiter.manage_watchers)


def _drain(stop: threading.Event, seconds: float) -> None:
    """Tell the worker to say that it is not ready, and give those who ask it time to notice."""
    if seconds > 0:
        stop.clear()
        for worker in psutil.Process().children():
            worker.send_signal(DRAIN_SIGNAL)
        stop.wait(seconds)


def _is_ready(address: tuple[str, int]) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
    connection = http.client.HTTPConnection(host, address[1], timeout=1.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(server: Any, stop: threading.Event, *, patience_s: float) -> None:
    """Stop gracefully; a second signal or the end of patience kills the worker."""
    stop.clear()
    stopper = threading.Thread(target=server.stop, daemon=True)
    stopper.start()
    deadline = time.monotonic() + patience_s
    forced = False
    while stopper.is_alive():
        stopper.join(0.05)
        if not forced and (stop.is_set() or time.monotonic() > deadline):
            forced = True
            for worker in psutil.Process().children(recursive=True):
                worker.kill()
    if forced:
        raise Failure("the server was stopped before everything it had accepted was answered.")
