"""The experiment: all services in turn, A B B A ..., each visit a fresh process under the same traffic.

Why a fresh server for each visit, when keeping all resident would save the starts: an idle server still holds memory
and caches, wakes timers and threads, and on a small machine disturbs the one that is measured. And a process keeps
for its life what chance gave it (memory layout, huge pages, where its threads run); restarting draws that anew each
round, so the intervals include it. The price is a start per visit, shown in the report. Nothing is cold that would be
warm in a long-lived server: weights are in the page cache from the check of their hashes, the server reports ready
after its own warm-up, and the first part of each stretch is not measured.

A service that is given by its address is visited as it is; it is not restarted, and its memory is not known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadtests.driver import drive
from loadtests.load import Load
from loadtests.machine import calibrate
from loadtests.payloads import STRATA
from loadtests.records import Run
from loadtests.servers import Server, Usage, serving
from loadtests.subjects import Subject

STRETCH = 16 * STRATA
"""Requests between the starting points of two stretches in the traffic: different rounds see different texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The shape of the experiment."""

    loads: tuple[Load, ...]
    rounds: int
    threads: int
    seed: int
    margin: float = 0.05
    target_ms: float | None = None
    """Answers that take longer are of no use to the user."""
    cores: tuple[int, ...] | None = None
    """Cores of the servers, the generator has the others; None leaves all to the system."""

    def load_s(self, subjects: int) -> float:
        """Seconds under load, all visits together, without starts."""
        return subjects * self.rounds * sum(load.total_s for load in self.loads)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """One load on one server."""

    run: Run
    server_cpu_s: float | None
    """Processor seconds of the server, warm-up included."""
    other_cores: float | None
    """Cores that were busy with neither the server nor the generator nor us."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One life of one server, or one visit to one that lives longer."""

    subject: int
    """Index of the service."""
    calibration_ms: float
    """Time of a fixed piece of work just before: the machine's own speed at this moment."""
    stretches: tuple[Stretch, ...]
    """One for each load."""
    start_s: float | None = None
    at_start: Usage | None = None
    after_load: Usage | None = None
    peak_rss_bytes: int | None = None


def order(rounds: int, subjects: int) -> list[tuple[int, int]]:
    """(round, subject) of each visit: A B C C B A A B C ..., so that a steady drift of the machine hits all alike."""
    forth = range(subjects)
    return [(round_, subject) for round_ in range(rounds) for subject in (forth if round_ % 2 == 0 else forth[::-1])]


def visit_all(
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    payloads: Sequence[Path],
    work: Path,
    on_progress: Callable[[str, float], None] = lambda doing, load_s: None,
) -> list[Visit]:
    """Visit the services in turn. One server at a time exists; none is left, whatever happens.

    Args:
        subjects: A, the baseline, and the others.
        plan: rounds, loads, times.
        payloads: the traffic for each of them, written by ``save_payloads``.
        work: folder for logs and records of the running visit.
        on_progress: told what is being done and how many of ``plan.load_s`` seconds are over.

    Raises:
        Failure: a server or the generator broke.
    """
    visits = []
    done_s = 0.0
    for round_, index in order(plan.rounds, len(subjects)):
        subject = subjects[index]
        title = f"round {round_ + 1}/{plan.rounds}, {subject.name}"
        on_progress(f"{title}: starting", done_s)
        calibration_ms = calibrate()

        def waiting(title: str = title, done_s: float = done_s) -> None:
            on_progress(f"{title}: starting", done_s)

        with visiting(subject, work=work, cores=plan.cores, on_tick=waiting) as (url, server):
            at_start = server.usage(proportional=True) if server else None
            stretches = []
            for position, load in enumerate(plan.loads):
                place = round_ * len(plan.loads) + position
                now = load.at(offset=place * STRETCH, seed=plan.seed + place)
                label = f"{title}, {load.title}"

                def tick(elapsed_s: float, label: str = label, done_s: float = done_s, load: Load = load) -> None:
                    if server:
                        server.usage()
                    on_progress(label, done_s + min(elapsed_s, load.total_s))

                stretches.append(stretch(subject, url, server, now, payloads[index], work, tick))
                done_s += load.total_s
            after_load = server.usage(proportional=True) if server else None
        visits.append(
            Visit(
                subject=index,
                calibration_ms=calibration_ms,
                stretches=tuple(stretches),
                start_s=server.start_s if server else None,
                at_start=at_start,
                after_load=after_load,
                peak_rss_bytes=server.peak_rss_bytes if server else None,
            )
        )
    on_progress("done", done_s)
    return visits


@contextlib.contextmanager
def visiting(
    subject: Subject, *, work: Path, cores: tuple[int, ...] | None = None, on_tick: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, Server | None]]:
    """Where a subject can be asked, and the server if it is ours; ours is gone afterwards."""
    if subject.command is None:
        yield subject.source, None
        return
    with serving(subject.command, name=subject.name, work=work, cores=cores, on_tick=on_tick) as server:
        yield server.url, server


def stretch(
    subject: Subject,
    url: str,
    server: Server | None,
    load: Load,
    payloads: Path,
    work: Path,
    on_tick: Callable[[float], None],
) -> Stretch:
    """Drive one load, and count what the server and strangers spent meanwhile."""
    ours = psutil.Process()
    started = time.monotonic()
    server_cpu_s = server.usage().cpu_s if server else 0.0
    our_cpu_s, busy_s = _cpu_s(ours), _busy_s()
    run = drive(url, load, payloads=payloads, work=work, api=subject.api, model=subject.model, on_tick=on_tick)
    if server is None:
        return Stretch(run=run, server_cpu_s=None, other_cores=None)
    server_cpu_s = server.usage().cpu_s - server_cpu_s
    known_s = server_cpu_s + _cpu_s(ours) - our_cpu_s + run.generator_cpu_s
    other_s = max(0.0, _busy_s() - busy_s - known_s)
    return Stretch(run=run, server_cpu_s=server_cpu_s, other_cores=other_s / (time.monotonic() - started))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_s() -> float:
    """Seconds that all cores together have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
