"""The knee: the highest rate of arrivals at which a service keeps its promise, found in an open loop.

A closed loop finds about what the service can do at most; then rates are tried, halving the interval between the
highest that kept the promise and the lowest that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contract.errors import Failure
from loadtests.compare import STRETCH, visiting
from loadtests.driver import drive
from loadtests.load import Load
from loadtests.records import FAILURES, MAX_CPU_SHARE, Run, health, latencies
from loadtests.subjects import Subject

USERS = 8
"""Of the closed loop that finds where to begin."""
FIRST = 0.6
"""Share of what it found at which the search begins."""
GROWTH = 1.3
"""From one rate to the next while none has failed."""
CLOSE = 1.08
"""The search ends when the lowest rate that failed is at most this many times the highest that did not."""
MAX_STEPS = 10
MAX_IN_FLIGHT = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class KneePlan:
    """The promise, and how long each rate is tried."""

    target_ms: float
    percent: float
    seconds: float
    warmup_s: float
    threads: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One rate."""

    rate: float
    p50_ms: float | None
    p99_ms: float | None
    promised_ms: float | None
    """The percentile that the promise is about."""
    failed: int
    """Errors, refusals, wrong answers and drops."""
    arrivals: int
    completed_per_s: float
    kept: bool
    problem: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """What the search found for one service."""

    capacity_per_s: float
    """Right answers per second in the closed loop."""
    steps: tuple[Step, ...]
    rate: float | None
    """The highest rate that kept the promise; None if none did."""
    failed_rate: float | None
    """The lowest that did not."""

    def facts(self) -> dict[str, Any]:
        """For a report."""
        return asdict(self)


def find_knee(
    subject: Subject,
    plan: KneePlan,
    *,
    payloads: Path,
    work: Path,
    cores: tuple[int, ...] | None = None,
    on_progress: Callable[[str], None] = lambda doing: None,
) -> Knee:
    """Search on one service; a bundle is served for the length of the search.

    Raises:
        Failure: the service broke, answers nothing, or the generator is the bottleneck before the service is.
    """

    def drive_at(url: str, load: Load) -> Run:
        on_progress(f"{subject.name}, {load.title}")
        return drive(url, load, payloads=payloads, work=work, api=subject.api, model=subject.model)

    shape: dict[str, Any] = {"warmup_s": plan.warmup_s, "seconds": plan.seconds}
    on_progress(f"{subject.name}: starting")
    with visiting(subject, work=work, cores=cores, on_tick=lambda: on_progress(f"{subject.name}: starting")) as (
        url,
        _,
    ):
        probe = drive_at(url, Load(users=USERS, **shape))
        if not probe.completed():
            raise Failure(f"{subject.name} gave no right answer to {USERS} users in {plan.seconds:g} s.")
        capacity = len(probe.completed()) / probe.measured_s
        steps: list[Step] = []
        rate: float | None = FIRST * capacity
        while rate is not None and len(steps) < MAX_STEPS:
            place = len(steps) + 1
            load = Load(rate=rate, max_in_flight=MAX_IN_FLIGHT, offset=place * STRETCH, seed=plan.seed + place, **shape)
            steps.append(step_of(drive_at(url, load), rate, plan))
            rate = next_rate(steps)
    kept = [step.rate for step in steps if step.kept]
    broken = [step.rate for step in steps if not step.kept]
    return Knee(
        capacity_per_s=capacity,
        steps=tuple(sorted(steps, key=lambda step: step.rate)),
        rate=max(kept, default=None),
        failed_rate=min(broken, default=None),
    )


def step_of(run: Run, rate: float, plan: KneePlan) -> Step:
    """Judge one rate.

    Raises:
        Failure: the generator could not send at that rate.
    """
    generator = health([run])
    if generator.cpu_share > MAX_CPU_SHARE:
        raise Failure(
            f"at {rate:.4g} arrivals/s the generator used {generator.cpu_share:.0%} of a core: it is the bottleneck. "
            "Let it run on a machine of its own."
        )
    steady = run.phase("steady")
    failed = sum(request.outcome in FAILURES for request in steady)
    waited = latencies(run.answered())
    promised = float(np.percentile(waited, plan.percent)) if len(waited) else None
    problem = None
    if failed:
        problem = f"{failed} of {len(steady)} failed"
    elif promised is None:
        problem = "nothing was answered"
    elif promised > plan.target_ms:
        problem = f"p{plan.percent:g} is {promised:.0f} ms"
    return Step(
        rate=rate,
        p50_ms=float(np.percentile(waited, 50)) if len(waited) else None,
        p99_ms=float(np.percentile(waited, 99)) if len(waited) else None,
        promised_ms=promised,
        failed=failed,
        arrivals=len(steady),
        completed_per_s=len(run.completed()) / run.measured_s,
        kept=problem is None,
        problem=problem,
    )


def next_rate(steps: Sequence[Step]) -> float | None:
    """The rate to try next; None when the knee is known well enough.

    Where chance made a higher rate keep the promise and a lower one not, the lower one counts.
    """
    broken = min((step.rate for step in steps if not step.kept), default=None)
    kept = max((step.rate for step in steps if step.kept and (broken is None or step.rate < broken)), default=None)
    if broken is None:
        return None if kept is None else kept * GROWTH
    if kept is None:
        return broken / 2
    return None if broken / kept <= CLOSE else (broken * kept) ** 0.5
