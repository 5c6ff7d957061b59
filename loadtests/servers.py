"""Starts a service on loopback, waits until it is ready, watches what it uses, and always stops it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from contract.errors import Failure
from loadtests import processes

READY_S = 300.0
"""Most time that a server may take until it is ready."""
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a process tree uses at one moment."""

    rss_bytes: int
    """Resident memory, summed over the tree; pages that processes share count in each."""
    pss_bytes: int | None
    """Proportional memory: shared pages are split between their users. None where the system does not tell."""
    cpu_s: float
    """Processor seconds used so far."""
    processes: int


@dataclass(kw_only=True)
class Server:
    """A running service."""

    port: int
    child: subprocess.Popen[bytes]
    log: Path
    name: str
    start_s: float = 0.0
    """From starting the process to the first 200 of ``/readyz``."""
    peak_rss_bytes: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def usage(self, *, proportional: bool = False) -> Usage:
        """Memory and processor time of the tree. ``proportional`` walks all mappings and takes milliseconds.

        Raises:
            Failure: the server is not running any more.
        """
        self.check()
        rss = pss = 0
        cpu_s = 0.0
        root = psutil.Process(self.child.pid)
        tree = [root, *root.children(recursive=True)]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                rss += process.memory_info().rss
                cpu_s += times.user + times.system
                if proportional:
                    pss += getattr(process.memory_full_info(), "pss", 0)
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        return Usage(rss_bytes=rss, pss_bytes=pss or None, cpu_s=cpu_s, processes=len(tree))

    def check(self) -> None:
        """Raise Failure with the end of its log if the server has ended."""
        if self.child.poll() is not None:
            ended = f"the server of {self.name} ended by itself (exit code {self.child.returncode})."
            raise Failure(ended + processes.log_tail(self.log))


def serve_command(bundle: Path, *, port: int, threads: int, precision: str) -> list[str]:
    """The command that serves a bundle on loopback."""
    # fmt: off
    return [
        sys.executable, "-m", "robal", "serve", str(bundle), "--host", "127.0.0.1", "--port", str(port),
        "--threads", str(threads), "--precision", precision,
    ]
    # fmt: on


def free_port() -> int:
    """A port of the loopback that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: Callable[[int], list[str]],
    *,
    name: str,
    work: Path,
    cores: tuple[int, ...] | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> Iterator[Server]:
    """A ready server for the length of a ``with`` block; it is gone afterwards, whatever happened.

    Args:
        command: the command line for a port.
        name: what to call it in messages.
        work: folder for its log.
        cores: those it may run on.
        on_tick: called while waiting for it.

    Raises:
        Failure: it ended before it was ready, or was not ready in time; the message has the end of its log.
    """
    port = free_port()
    log = work / "server.log"
    started = time.monotonic()
    child = processes.start(command(port), work=work, log=log, cores=cores)
    server = Server(port=port, child=child, log=log, name=name)
    try:
        while not _is_ready(port):
            server.check()
            if time.monotonic() - started > READY_S:
                raise Failure(f"the server of {name} was not ready within {READY_S:.0f} s.{processes.log_tail(log)}")
            on_tick()
            time.sleep(POLL_S)
        server.start_s = time.monotonic() - started
        yield server
    finally:
        processes.stop(child)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
