"""Runs one stretch of load: Locust, headless, in a process of its own, bounded in time and requests."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from contract.errors import Failure, UsageError
from contract.storage import write_atomic
from loadtests import processes
from loadtests.load import Load, schedule
from loadtests.records import Run, read_records

CLOSED, OPEN = Path(__file__).with_name("locustfile.py"), Path(__file__).with_name("openloop.py")
START_S = 30.0
"""Most time that Locust may take to start."""
ANSWER_S = 60.0
"""Most time that users may wait for their last answer."""
STOP_S = 10.0
"""Most time that Locust may take to end after that."""
TICK_S = 0.5
GO_S = 0.1
"""From the word to the start: all processes must have read it."""


def check_url(url: str, *, allow_remote: bool = False) -> None:
    """Refuse what is no service's address, and a machine that may be somebody else's.

    Raises:
        UsageError: the URL is not http, or its host is not this machine's loopback.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not the address of a service; http://127.0.0.1:3000 would be one.")
    host = parts.hostname
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not (local or allow_remote):
        raise UsageError(
            f"{url!r} is not on this machine, where a load test can look like an attack; "
            "add --allow-remote if that service is yours."
        )


def drive(
    url: str,
    load: Load,
    *,
    payloads: Path,
    work: Path,
    api: str = "robal",
    model: str | None = None,
    on_tick: Callable[[float], None] = lambda seconds: None,
) -> Run:
    """Put one load on one server and read what happened.

    Args:
        url: where the service listens.
        load: users or arrivals, and times.
        payloads: file of request bodies, written by ``save_payloads``.
        work: folder for the records and the logs of this stretch.
        api: the service's protocol.
        model: its model's name, where the protocol wants one.
        on_tick: called about twice a second with the seconds since the start; may raise to end the run.

    Raises:
        Failure: Locust did not start, ended by itself, or did not end in time.
    """
    for old in work.glob("go*"):
        old.unlink()
    settings = {
        "ROBAL_LOADTEST_PAYLOADS": str(payloads),
        "ROBAL_LOADTEST_PROTOCOL": api,
        "ROBAL_LOADTEST_OFFSET": str(load.offset),
        "ROBAL_LOADTEST_SECONDS": str(load.total_s),
        "ROBAL_LOADTEST_GO": str(work / "go"),
    }
    if model is not None:
        settings["ROBAL_LOADTEST_MODEL"] = model
    if load.is_open:
        due = schedule(load)
        (work / "schedule.json").write_text(json.dumps(due.tolist()))
        settings["ROBAL_LOADTEST_SCHEDULE"] = str(work / "schedule.json")
        settings["ROBAL_LOADTEST_IN_FLIGHT"] = str(math.ceil(load.max_in_flight / load.processes))
    limit_s = load.total_s + ANSWER_S + STOP_S
    children: list[subprocess.Popen[bytes]] = []
    try:
        for share in range(load.processes):
            children.append(_start(url, load, share, START_S + limit_s, settings, work))
        _go(children, work / "go")
        _wait(children, limit_s, on_tick)
    finally:
        for child in children:
            processes.stop(child)
    files = [path.read_text().splitlines() if path.exists() else [] for path in _records(work, load.processes)]
    run = None if any(child.returncode for child in children) else read_records(files, load=load)
    if run is None:
        raise _broken(children, work)
    return run


def _start(
    url: str, load: Load, share: int, run_time_s: float, settings: dict[str, str], work: Path
) -> subprocess.Popen[bytes]:
    users = 1 if load.users is None else len(range(share, load.users, load.processes))
    (records,) = _records(work, load.processes)[share : share + 1]
    records.unlink(missing_ok=True)
    # fmt: off
    command = [
        sys.executable, "-m", "locust", "-f", str(OPEN if load.is_open else CLOSED),
        "--headless", "--host", url.rstrip("/"), "-u", str(users), "-r", str(users),
        "--run-time", f"{math.ceil(run_time_s)}s", "--stop-timeout", f"{math.ceil(ANSWER_S)}s",
        "--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0",
    ]
    # fmt: on
    own = {"ROBAL_LOADTEST_SHARE": f"{share}/{load.processes}", "ROBAL_LOADTEST_RECORDS": str(records)}
    if not load.is_open:
        own["ROBAL_LOADTEST_MAX_REQUESTS"] = str(len(range(share, load.max_requests, load.processes)))
    return processes.start(command, work=work, log=_log(work, share), settings=settings | own)


def _go(children: Sequence[subprocess.Popen[bytes]], go: Path) -> None:
    """When all processes wait, tell them the moment to begin at, on the machine's clock."""
    give_up = time.monotonic() + START_S
    while not all(Path(f"{go}.{share}").exists() for share in range(len(children))):
        if any(child.poll() is not None for child in children):
            raise _broken(children, go.parent)
        if time.monotonic() > give_up:
            raise Failure(f"the load generator was not ready within {START_S:.0f} s.")
        time.sleep(GO_S / 10)
    write_atomic(go, repr(time.perf_counter() + GO_S))


def _wait(children: Sequence[subprocess.Popen[bytes]], limit_s: float, on_tick: Callable[[float], None]) -> None:
    started = time.monotonic()
    while running := [child for child in children if child.poll() is None]:
        elapsed_s = time.monotonic() - started
        if elapsed_s > limit_s:
            raise Failure(f"the load generator did not end within {limit_s:.0f} s; its server may hang.")
        on_tick(elapsed_s)
        try:
            running[0].wait(TICK_S)
        except subprocess.TimeoutExpired:
            continue


def _broken(children: Sequence[subprocess.Popen[bytes]], work: Path) -> Failure:
    share, code = next(((share, child.poll()) for share, child in enumerate(children) if child.poll()), (0, 0))
    return Failure(f"the load generator did not finish (exit code {code}).{processes.log_tail(_log(work, share))}")


def _records(work: Path, count: int) -> list[Path]:
    return [work / f"records.{share}.jsonl" for share in range(count)]


def _log(work: Path, share: int) -> Path:
    return work / f"locust.{share}.log"
