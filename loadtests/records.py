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

from loadtests.answers import Outcome
from loadtests.load import Floats, Load

Phase: TypeAlias = Literal["warm-up", "steady", "cool-down"]

MAX_CPU_SHARE = 0.8
"""A Locust process is one thread: above this share of a core it queues requests itself."""
MAX_LATENESS_SHARE = 0.1
"""Share of a percentile of the latency that the same percentile of the generator's lateness may reach ..."""
FAILURES: dict[Outcome, str] = {
    "error": "failed",
    "refused": "were refused",
    "wrong": "got a wrong answer",
    "dropped": "were dropped by the generator, which had as many open as it may",
}
TIMER_GRAIN_MS = 1.0
"""... beyond this: event loops round their timers up to whole milliseconds, answers are noticed without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request as the generator saw it."""

    index: int
    """Place of its text in the traffic: the same number is the same text, whoever answers."""
    sent_s: float
    """Seconds since the test began. In an open loop: when it was due."""
    late_ms: float
    """How long after that, or in a closed loop after its user was free, the generator sent it."""
    latency_ms: float
    """From ``sent_s`` to the last byte of the answer, not rounded."""
    status: int
    outcome: Outcome
    problem: str | None
    texts: int
    characters: int
    tokens: int
    mislabelled: int = 0
    """Texts whose label is not the expected one."""
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    """What the server says about its stages: ``tokenize``, ``queue``, ``engine``, ``total``."""

    @property
    def done_s(self) -> float:
        """When the answer was complete."""
        return self.sent_s + self.latency_ms / 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A moment in the life of a generator process: ``ready``, ``probe``, ``stop`` or ``end``."""

    event: str
    at_s: float
    cpu_s: float
    """Processor seconds that it had used."""
    late_ms: float = 0.0
    """How late its timer fired (probes only)."""
    process: int = 0
    """Which of the generator's processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorHealth:
    """Whether the numbers are the server's or the generator's own."""

    cpu_share: float
    """Share of one core that a generator process used while it measured, the busiest of them."""
    lateness_p50_ms: float
    lateness_p90_ms: float
    lateness_p99_ms: float
    """How late a 20 ms timer fired: as late as this, an arrived answer may have been noticed."""
    send_late_p99_ms: float
    """How late requests were sent: after they were due, or in a closed loop after their user was free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One stretch of load on one server."""

    load: Load
    requests: tuple[Request, ...]
    marks: tuple[Mark, ...]

    @property
    def generator_cpu_s(self) -> float:
        """Processor seconds of the generator, all its processes and their start included."""
        return sum(max(mark.cpu_s for mark in marks) for marks in self.by_process().values())

    def by_process(self) -> dict[int, list[Mark]]:
        """The marks of each generator process."""
        own: dict[int, list[Mark]] = {}
        for mark in self.marks:
            own.setdefault(mark.process, []).append(mark)
        return own

    @property
    def steady_from_s(self) -> float:
        """Start of the measured time: when all users were there, plus the warm-up."""
        return self._moment("ready") + self.load.warmup_s

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
        return min(mark.at_s for mark in self.marks if mark.event == event)


def latencies(requests: Iterable[Request]) -> Floats:
    """Latencies in ms, in the order of the requests."""
    return np.array([request.latency_ms for request in requests], dtype=np.float64)


def health(runs: Sequence[Run]) -> GeneratorHealth:
    """The generator's processor share and lateness in the measured time of runs that belong together."""
    shares: list[float] = []
    late: list[float] = []
    send_late: list[float] = []
    for run in runs:
        low, high = run.steady_from_s, run.steady_until_s
        for marks in run.by_process().values():
            probes = [mark for mark in marks if mark.event == "probe" and low <= mark.at_s < high]
            if len(probes) > 1:
                shares.append((probes[-1].cpu_s - probes[0].cpu_s) / (probes[-1].at_s - probes[0].at_s))
            late += [probe.late_ms for probe in probes]
        send_late += [request.late_ms for request in run.phase("steady")]
    return GeneratorHealth(
        cpu_share=max(shares, default=0.0),
        lateness_p50_ms=float(np.percentile(late or [0.0], 50)),
        lateness_p90_ms=float(np.percentile(late or [0.0], 90)),
        lateness_p99_ms=float(np.percentile(late or [0.0], 99)),
        send_late_p99_ms=float(np.percentile(send_late or [0.0], 99)),
    )


def faults(runs: Sequence[Run]) -> list[str]:
    """Why runs that belong together must not be believed; empty when they can be."""
    if empty := [run for run in runs if not run.answered()]:
        return [f"no right answer in {empty[0].measured_s:.1f} measured seconds{_most_common(empty[0].requests)}"]
    steady = [request for run in runs for request in run.phase("steady")]
    found = [
        f"{count} of {len(steady)} requests {meaning}{_most_common(r for r in steady if r.outcome == outcome)}"
        for outcome, meaning in FAILURES.items()
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


def read_records(files: Sequence[Iterable[str]], *, load: Load) -> Run | None:
    """Parse the JSON lines of each generator process; None if one of them did not come to its end."""
    requests: list[Request] = []
    marks: list[Mark] = []
    for process, lines in enumerate(files):
        records: list[dict[str, Any]] = [json.loads(line) for line in lines]
        own = [Mark(**record, process=process) for record in records if "event" in record]
        if not {"ready", "stop", "end"} <= {mark.event for mark in own}:
            return None
        marks += own
        requests += [Request(**record) for record in records if "event" not in record]
    requests.sort(key=lambda request: request.sent_s)
    return Run(load=load, requests=tuple(requests), marks=tuple(marks))


def _most_common(requests: Iterable[Request]) -> str:
    problems = Counter(request.problem for request in requests if request.problem)
    return f" (mostly: {problems.most_common(1)[0][0]})" if problems else ""
