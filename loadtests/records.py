"""What a load-test process wrote, read back: requests in phases, and the generator's own health.

A run has four phases, told apart by when a request was *sent*:

    start --ramp--> all users there --warm-up--> steady --(stop)--> cool-down

Only the steady phase is measured. The others are kept and reported apart: they hold cold caches, opening connections
and a changing number of users.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from loadtests.answers import Outcome

Phase: TypeAlias = Literal["warm-up", "steady", "cool-down"]
Floats: TypeAlias = npt.NDArray[np.float64]

MAX_CPU_SHARE = 0.8
"""A Locust process is one thread: above this share of a core it queues requests itself."""
MAX_LATENESS_SHARE = 0.1
"""Share of a percentile of the latency that the same percentile of the generator's lateness may reach ..."""
TIMER_GRAIN_MS = 1.0
"""... beyond this: event loops round their timers up to whole milliseconds, answers are noticed without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request as the generator saw it."""

    index: int
    """Place of its text in the traffic: the same number is the same text, whoever answers."""
    sent_s: float
    """Seconds since the test began."""
    late_ms: float
    """How long after its user was free it was sent."""
    latency_ms: float
    """From sending to the last byte of the answer, not rounded."""
    status: int
    outcome: Outcome
    problem: str | None
    texts: int
    characters: int
    tokens: int
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    """What the server says about its stages: ``tokenize``, ``queue``, ``engine``, ``total``."""

    @property
    def done_s(self) -> float:
        """When the answer was complete."""
        return self.sent_s + self.latency_ms / 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A moment in the generator's life: ``start``, ``ready``, ``probe``, ``stop`` or ``end``."""

    event: str
    at_s: float
    cpu_s: float
    """Processor seconds that the generator had used."""
    late_ms: float = 0.0
    """How late its timer fired (probes only)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorHealth:
    """Whether the numbers are the server's or the generator's own."""

    cpu_share: float
    """Share of one core that the generator used while it measured."""
    lateness_p50_ms: float
    lateness_p90_ms: float
    lateness_p99_ms: float
    """How late a 20 ms timer fired: as late as this, an arrived answer may have been noticed."""
    send_gap_p99_ms: float
    """From one answer to the same user's next request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One stretch of load on one server."""

    users: int
    requests: tuple[Request, ...]
    marks: tuple[Mark, ...]
    warmup_s: float

    @property
    def steady_from_s(self) -> float:
        """Start of the measured time: when all users were there, plus the warm-up."""
        return self._moment("ready") + self.warmup_s

    @property
    def steady_until_s(self) -> float:
        """End of the measured time: when the stop was ordered."""
        return self._moment("stop")

    @property
    def measured_s(self) -> float:
        """Length of the measured time; 0 if the test ended during the warm-up."""
        return max(0.0, self.steady_until_s - self.steady_from_s)

    def phase(self, phase: Phase) -> list[Request]:
        """Requests sent in a phase."""
        low, high = self.steady_from_s, self.steady_until_s
        spans = {"warm-up": (-np.inf, min(low, high)), "steady": (low, high), "cool-down": (high, np.inf)}
        start, end = spans[phase]
        return [request for request in self.requests if start <= request.sent_s < end]

    def answered(self) -> list[Request]:
        """Right answers to requests of the steady phase: the only ones whose latency counts."""
        return [request for request in self.phase("steady") if request.outcome == "ok"]

    def completed(self) -> list[Request]:
        """Right answers that arrived within the measured time: what throughput counts."""
        low, high = self.steady_from_s, self.steady_until_s
        return [request for request in self.requests if request.outcome == "ok" and low <= request.done_s < high]

    def _moment(self, event: str) -> float:
        return next(mark.at_s for mark in self.marks if mark.event == event)


def latencies(requests: Iterable[Request]) -> Floats:
    """Latencies in ms, in the order of the requests."""
    return np.array([request.latency_ms for request in requests], dtype=np.float64)


def health(runs: Sequence[Run]) -> GeneratorHealth:
    """The generator's processor share and lateness in the measured time of runs that belong together."""
    cpu_s = time_s = 0.0
    late: list[float] = []
    gaps: list[float] = []
    for run in runs:
        low, high = run.steady_from_s, run.steady_until_s
        probes = [mark for mark in run.marks if mark.event == "probe" and low <= mark.at_s < high]
        if len(probes) > 1:
            cpu_s += probes[-1].cpu_s - probes[0].cpu_s
            time_s += probes[-1].at_s - probes[0].at_s
        late += [probe.late_ms for probe in probes]
        gaps += [request.late_ms for request in run.phase("steady")]
    return GeneratorHealth(
        cpu_share=cpu_s / time_s if time_s else 0.0,
        lateness_p50_ms=float(np.percentile(late or [0.0], 50)),
        lateness_p90_ms=float(np.percentile(late or [0.0], 90)),
        lateness_p99_ms=float(np.percentile(late or [0.0], 99)),
        send_gap_p99_ms=float(np.percentile(gaps or [0.0], 99)),
    )


def faults(runs: Sequence[Run]) -> list[str]:
    """Why runs that belong together must not be believed; empty when they can be."""
    if empty := [run for run in runs if not run.answered()]:
        return [f"no right answer in {empty[0].measured_s:.1f} measured seconds{_most_common(empty[0].requests)}"]
    steady = [request for run in runs for request in run.phase("steady")]
    found = [
        f"{count} of {len(steady)} requests {meaning}{_most_common(r for r in steady if r.outcome == outcome)}"
        for outcome, meaning in (("error", "failed"), ("refused", "were refused"), ("wrong", "got a wrong answer"))
        if (count := sum(request.outcome == outcome for request in steady))
    ]
    generator = health(runs)
    if generator.cpu_share > MAX_CPU_SHARE:
        found.append(f"the generator was the bottleneck: it used {generator.cpu_share:.0%} of a core")
    elif late := _late(runs, 90, generator.lateness_p90_ms):
        found.append(f"the generator was the bottleneck: {late}")
    return found


def doubts(runs: Sequence[Run]) -> list[str]:
    """What spoils only the slowest requests of runs without faults: a few hiccups of a machine with other work."""
    late = _late(runs, 99, health(runs).lateness_p99_ms)
    return [f"the p99 is partly the generator's: {late}"] if late else []


def _late(runs: Sequence[Run], percent: int, late_ms: float) -> str | None:
    """The sentence about a percentile of the lateness, if that is too much for the same percentile of the latency."""
    latency_ms = float(np.percentile(np.concatenate([latencies(run.answered()) for run in runs]), percent))
    if late_ms - TIMER_GRAIN_MS <= MAX_LATENESS_SHARE * latency_ms:
        return None
    return f"its timers fired {late_ms:.1f} ms late (p{percent}), too much for a latency of {latency_ms:.1f} ms"


def read_records(lines: Sequence[str], *, users: int, warmup_s: float) -> Run | None:
    """Parse the generator's JSON lines; None if the test did not come to its end."""
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    run = Run(
        users=users,
        requests=tuple(Request(**record) for record in records if "event" not in record),
        marks=tuple(Mark(**record) for record in records if "event" in record),
        warmup_s=warmup_s,
    )
    return run if {"ready", "stop", "end"} <= {mark.event for mark in run.marks} else None


def _most_common(requests: Iterable[Request]) -> str:
    problems = Counter(request.problem for request in requests if request.problem)
    return f" (mostly: {problems.most_common(1)[0][0]})" if problems else ""
