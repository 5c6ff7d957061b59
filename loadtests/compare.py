"""The experiment: both servers in turn, A B B A ..., each visit a fresh process under the same traffic.

Why a fresh server for each visit, when keeping both resident would save the starts: an idle server still holds memory
and caches, wakes timers and threads, and on a small machine disturbs the one that is measured. And a process keeps
for its life what chance gave it (memory layout, huge pages, where its threads run); restarting draws that anew each
round, so the intervals include it. The price is a start per visit, shown in the report. Nothing is cold that would be
warm in a long-lived server: weights are in the page cache from the check of their hashes, the server reports ready
after its own warm-up, and the first part of each stretch is not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from contract.errors import UsageError
from contract.manifest import MANIFEST_NAME, Manifest, load_manifest
from contract.storage import sha256_file
from loadtests.driver import Load, drive
from loadtests.payloads import STRATA
from loadtests.records import Run
from loadtests.servers import Server, Usage, serve_command, serving

STRETCH = 16 * STRATA
"""Requests between the starting points of two stretches in the traffic: different rounds see different texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One of the two services that are compared."""

    name: str
    family: str
    precision: str
    parameters: int
    unique_parameters: int
    size_bytes: int
    """The graph and its weights."""
    bundle: str
    """As the user named it."""
    sha256: str
    """Of the manifest, which holds the sha256 of every other file."""
    command: Callable[[int], list[str]]
    """Command line that serves it on a port."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The shape of the experiment."""

    users: tuple[int, ...]
    rounds: int
    seconds: float
    warmup_s: float
    threads: int
    seed: int
    margin: float

    @property
    def load_s(self) -> float:
        """Seconds under load, all visits together, without starts."""
        return 2 * self.rounds * len(self.users) * (self.warmup_s + self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """One load on one server."""

    run: Run
    server_cpu_s: float
    """Processor seconds of the server, warm-up included."""
    other_cores: float
    """Cores that were busy with neither the server nor the generator nor us."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One life of one server."""

    subject: int
    """0 for A, 1 for B."""
    start_s: float
    at_start: Usage
    after_load: Usage
    peak_rss_bytes: int
    stretches: tuple[Stretch, ...]
    """One for each number of users."""


def open_subjects(bundles: tuple[Path, Path], *, precision: str, threads: int) -> tuple[Subject, Subject]:
    """Read and verify both bundles; two of the same name are told apart by their folders.

    Raises:
        BundleError: a bundle is missing, broken, edited, or lacks the precision.
        UsageError: the same bundle twice under one name, or something that is not a folder's path.
    """
    manifests = []
    for bundle in bundles:
        if "://" in str(bundle) or str(bundle).startswith(("http:", "https:")):
            raise UsageError(f"{str(bundle)!r} is a URL; compare takes two bundle folders and serves them itself.")
        manifests.append(load_manifest(bundle))
    names = [manifest.name for manifest in manifests]
    if names[0] == names[1]:
        names = [bundle.absolute().name for bundle in bundles]
    if names[0] == names[1]:
        names = [f"{names[0]} (A)", f"{names[1]} (B)"]
    first, second = (
        _subject(name, bundle, manifest, precision=precision, threads=threads)
        for name, bundle, manifest in zip(names, bundles, manifests, strict=True)
    )
    return first, second


def _subject(name: str, bundle: Path, manifest: Manifest, *, precision: str, threads: int) -> Subject:
    graph = manifest.graph(precision)
    folder = bundle.absolute()
    return Subject(
        name=name,
        family=manifest.family,
        precision=precision,
        parameters=manifest.parameters,
        unique_parameters=manifest.unique_parameters,
        size_bytes=sum((folder / file).stat().st_size for file in (graph.file, *graph.weights)),
        bundle=str(bundle),
        sha256=sha256_file(bundle / MANIFEST_NAME),
        command=lambda port: serve_command(folder, port=port, threads=threads, precision=precision),
    )


def order(rounds: int) -> list[tuple[int, int]]:
    """(round, subject) of each visit: A B B A A B B A ..., so that a steady drift of the machine hits both alike."""
    return [(round_, subject) for round_ in range(rounds) for subject in ((0, 1) if round_ % 2 == 0 else (1, 0))]


def compare(
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    payloads: Path,
    work: Path,
    on_progress: Callable[[str, float], None] = lambda doing, load_s: None,
) -> list[Visit]:
    """Visit the servers in turn. One server at a time exists; none is left, whatever happens.

    Args:
        subjects: A, the baseline, and B.
        plan: rounds, users, times.
        payloads: the traffic, written by ``save_payloads``.
        work: folder for logs and records of the running visit.
        on_progress: told what is being done and how many of ``plan.load_s`` seconds are over.

    Raises:
        Failure: a server or the generator broke.
    """
    visits = []
    done_s = 0.0
    for round_, index in order(plan.rounds):
        subject = subjects[index]
        title = f"round {round_ + 1}/{plan.rounds}, {subject.name}"
        on_progress(f"{title}: starting", done_s)

        def waiting(title: str = title, done_s: float = done_s) -> None:
            on_progress(f"{title}: starting", done_s)

        with serving(subject.command, name=subject.name, work=work, on_tick=waiting) as server:
            at_start = server.usage(proportional=True)
            stretches = []
            for position, users in enumerate(plan.users):
                load = Load(
                    users=users,
                    warmup_s=plan.warmup_s,
                    seconds=plan.seconds,
                    offset=(round_ * len(plan.users) + position) * STRETCH,
                )
                label = f"{title}, {users} user{'s' if users > 1 else ''}"
                stretches.append(_stretch(server, load, payloads, work, label, done_s, on_progress))
                done_s += load.warmup_s + load.seconds
            after_load = server.usage(proportional=True)
        visits.append(
            Visit(
                subject=index,
                start_s=server.start_s,
                at_start=at_start,
                after_load=after_load,
                peak_rss_bytes=server.peak_rss_bytes,
                stretches=tuple(stretches),
            )
        )
    on_progress("done", done_s)
    return visits


def _stretch(
    server: Server,
    load: Load,
    payloads: Path,
    work: Path,
    label: str,
    done_s: float,
    on_progress: Callable[[str, float], None],
) -> Stretch:
    def tick(elapsed_s: float) -> None:
        server.usage()
        on_progress(label, done_s + min(elapsed_s, load.warmup_s + load.seconds))

    ours = psutil.Process()
    started = time.monotonic()
    server_cpu_s, our_cpu_s, busy_s = server.usage().cpu_s, _cpu_s(ours), _busy_s()
    run = drive(server.url, load, payloads=payloads, work=work, on_tick=tick)
    server_cpu_s = server.usage().cpu_s - server_cpu_s
    known_s = server_cpu_s + _cpu_s(ours) - our_cpu_s + run.marks[-1].cpu_s
    other_s = max(0.0, _busy_s() - busy_s - known_s)
    return Stretch(run=run, server_cpu_s=server_cpu_s, other_cores=other_s / (time.monotonic() - started))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_s() -> float:
    """Seconds that all cores together have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
