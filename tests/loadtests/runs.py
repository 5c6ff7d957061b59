"""Runs made of numbers, for everything that only computes."""

from collections.abc import Sequence
from typing import Any

from loadtests.compare import Stretch, Visit
from loadtests.load import Load
from loadtests.records import Mark, Request, Run
from loadtests.servers import Usage

STAGES = {"tokenize": 0.1, "queue": 0.2, "engine": 2.0, "total": 2.5}


def request(sent_s: float, latency_ms: float = 10.0, **changes: Any) -> Request:
    values = {
        "index": 0,
        "sent_s": sent_s,
        "late_ms": 0.1,
        "latency_ms": latency_ms,
        "status": 200,
        "outcome": "ok",
        "problem": None,
        "texts": 1,
        "characters": 50,
        "tokens": 12,
        "stages_ms": STAGES,
    }
    return Request(**(values | changes))


def run(
    requests: Sequence[Request],
    *,
    users: int = 1,
    warmup_s: float = 1.0,
    seconds: float = 3.0,
    cpu_share: float = 0.1,
    late_ms: float = 0.3,
) -> Run:
    """Users are all there at 0.5 s; the stop comes after warm-up and measured time."""
    stop_s = 0.5 + warmup_s + seconds
    probes = [
        Mark(event="probe", at_s=at / 50, cpu_s=1 + cpu_share * at / 50, late_ms=late_ms)
        for at in range(int(50 * stop_s))
    ]
    marks = (
        Mark(event="ready", at_s=0.5, cpu_s=1),
        *probes,
        Mark(event="stop", at_s=stop_s, cpu_s=2),
        Mark(event="end", at_s=stop_s + 0.1, cpu_s=2),
    )
    load = Load(users=users, warmup_s=warmup_s, seconds=seconds)
    return Run(load=load, requests=tuple(requests), marks=marks)


def steady_run(latencies: Sequence[float], users: int = 1, **changes: Any) -> Run:
    """One warm-up request, then these latencies, evenly spread over the three measured seconds."""
    step_s = 3 / len(latencies)
    steady = [
        request(
            1.5 + step_s * position, value, index=position, characters=20 + position % 40 * 5, tokens=4 + position % 40
        )
        for position, value in enumerate(latencies)
    ]
    return run([request(0.6, 500.0), *steady], users=users, **changes)


def visit(subject: int, *runs: Run, rss_bytes: int = 200_000_000) -> Visit:
    usage = Usage(rss_bytes=rss_bytes, pss_bytes=rss_bytes - 1_000_000, cpu_s=1.0, processes=2)
    return Visit(
        subject=subject,
        calibration_ms=2.5,
        start_s=2.0,
        at_start=usage,
        after_load=usage,
        peak_rss_bytes=rss_bytes + 5_000_000,
        stretches=tuple(Stretch(run=run, server_cpu_s=1.0, other_cores=0.0) for run in runs),
    )
