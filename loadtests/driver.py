"""Runs one stretch of load: Locust, headless, in a process of its own, bounded in time and requests."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from contract.errors import Failure, UsageError
from loadtests import processes
from loadtests.records import Run, read_records

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
START_S = 30.0
"""Most time that Locust may take to start."""
ANSWER_S = 60.0
"""Most time that users may wait for their last answer."""
TICK_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How one server is driven: ``users`` in a closed loop."""

    users: int
    warmup_s: float
    seconds: float
    """Measured time, after the warm-up."""
    max_requests: int = 1_000_000
    offset: int = 0
    """Position in the traffic where this stretch begins."""


def require_loopback(url: str) -> None:
    """Refuse to load a machine that may be somebody else's.

    Raises:
        UsageError: the URL's host is not this machine's loopback.
    """
    host = urlsplit(url).hostname or ""
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise UsageError(f"{url!r} is not on this machine; load tests only drive 127.0.0.1, ::1 or localhost.")


def drive(
    url: str, load: Load, *, payloads: Path, work: Path, on_tick: Callable[[float], None] = lambda seconds: None
) -> Run:
    """Put one load on one server and read what happened.

    Args:
        url: where the service listens; loopback only.
        load: users and times.
        payloads: file of request bodies, written by ``save_payloads``.
        work: folder for the records and the log of this stretch.
        on_tick: called about twice a second with the seconds since the start; may raise to end the run.

    Raises:
        UsageError: the URL is not loopback.
        Failure: Locust did not start, ended by itself, or did not end in time.
    """
    require_loopback(url)
    records, log = work / "records.jsonl", work / "locust.log"
    records.unlink(missing_ok=True)
    limit_s = START_S + load.warmup_s + load.seconds + ANSWER_S
    # fmt: off
    command = [
        sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--host", url.rstrip("/"),
        "-u", str(load.users), "-r", str(load.users), "--run-time", f"{math.ceil(limit_s)}s",
        "--stop-timeout", f"{math.ceil(ANSWER_S)}s",
        "--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0",
    ]
    # fmt: on
    settings = {
        "ROBAL_LOADTEST_PAYLOADS": str(payloads),
        "ROBAL_LOADTEST_RECORDS": str(records),
        "ROBAL_LOADTEST_OFFSET": str(load.offset),
        "ROBAL_LOADTEST_SECONDS": str(load.warmup_s + load.seconds),
        "ROBAL_LOADTEST_MAX_REQUESTS": str(load.max_requests),
    }
    child = processes.start(command, work=work, log=log, settings=settings)
    try:
        _wait(child, limit_s, on_tick)
    finally:
        processes.stop(child)
    lines = records.read_text().splitlines() if records.exists() else []
    run = read_records(lines, users=load.users, warmup_s=load.warmup_s) if child.returncode == 0 else None
    if run is None:
        raise Failure(f"the load generator did not finish (exit code {child.returncode}).{processes.log_tail(log)}")
    return run


def _wait(child: subprocess.Popen[bytes], limit_s: float, on_tick: Callable[[float], None]) -> None:
    started = time.monotonic()
    while child.poll() is None:
        elapsed_s = time.monotonic() - started
        if elapsed_s > limit_s:
            raise Failure(f"the load generator did not end within {limit_s:.0f} s; its server may hang.")
        on_tick(elapsed_s)
        try:
            child.wait(TICK_S)
        except subprocess.TimeoutExpired:
            continue
