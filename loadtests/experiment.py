"""From the options of a command to a written report: shared by ``run`` and ``compare``."""

from __future__ import annotations

import itertools
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from contract.errors import Failure, Interrupted, UsageError
from contract.storage import write_atomic
from loadtests import assertions, files, knee_report, machine, payloads, report
from loadtests.compare import Plan, visit_all
from loadtests.knee import MAX_STEPS, KneePlan, find_knee
from loadtests.load import Load, read_trace
from loadtests.progress import Progress
from loadtests.protocols import protocol
from loadtests.subjects import Subject

N = TypeVar("N", int, float)

MAX_USERS = 256
MAX_RATE = 100_000.0


def loads(
    *,
    users: str | None,
    rate: str | None,
    trace: Path | None,
    burstiness: float,
    max_in_flight: int,
    processes: int,
    warmup_s: float,
    seconds: float,
) -> tuple[Load, ...]:
    """The loads that the options ask for, closed loops first.

    Raises:
        UsageError: a list of users or rates, or a trace, that cannot be used.
    """
    shape: dict[str, Any] = {"warmup_s": warmup_s, "seconds": seconds, "processes": processes}
    arriving = shape | {"burstiness": burstiness, "max_in_flight": max_in_flight}
    if users is None and rate is None and trace is None:
        users = "1,8" if processes == 1 else f"{max(8, processes)}"
    counts = () if users is None else numbers("--users", users, 1, MAX_USERS, "1,8")
    if counts and counts[0] < processes:
        raise UsageError(f"{processes} generator processes cannot share {counts[0]} user; each needs one.")
    rates = () if rate is None else _numbers("--rate", rate, 0.01, MAX_RATE, "20,40", float)
    found = [Load(users=count, **shape) for count in counts]
    found += [Load(rate=each, **arriving) for each in rates]
    if trace is not None:
        try:
            times = read_trace(trace.read_text(encoding="utf-8-sig"), name=f"--trace {trace}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--trace {trace} cannot be read ({error}).") from None
        found.append(Load(trace=times, **arriving))
    return tuple(found)


def numbers(flag: str, text: str, low: int, high: int, example: str) -> tuple[int, ...]:
    """Ascending whole numbers from ``1,8``. Raises UsageError for what is no such list."""
    return _numbers(flag, text, low, high, example, int)


def _numbers(flag: str, text: str, low: float, high: float, example: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    try:
        found = tuple(sorted({kind(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or not all(low <= number <= high for number in found):
        raise UsageError(
            f"{flag} is {text!r}; numbers from {low:g} to {high:g} with commas were expected, as in {example}."
        )
    return found


def pinned_cores(pin: bool) -> tuple[int, ...] | None:
    """Cores of the servers. The last one becomes ours and so the generator's, which inherits it.

    Raises:
        UsageError: pinning is not possible here.
    """
    if not pin:
        return None
    try:
        cores = psutil.Process().cpu_affinity()
    except AttributeError:
        raise UsageError("--pin: this system does not let a process choose its cores.") from None
    if cores is None or len(cores) < 2:
        raise UsageError("--pin needs two cores or more, one of them for the generator.")
    psutil.Process().cpu_affinity(cores[-1:])
    return tuple(cores[:-1])


def measure(
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    texts: Path | None,
    out: Path,
    overwrite: bool,
    conditions: Sequence[str],
    junit: Path | None,
) -> None:
    """Visit the services, write the report, say the verdict, judge the conditions.

    Raises:
        UsageError: ``out`` cannot be used, or a condition cannot be read.
        Failure: the numbers must not be believed, or a condition does not hold.
    """
    files.check_target(out, overwrite=overwrite)
    assertions.check_names(conditions, [each.name for each in subjects], [each.family for each in subjects])
    facts = machine.describe_machine()
    with _working(subjects, texts, seed=plan.seed, out=out) as (work, bodies, traffic):
        load_s = plan.load_s(len(subjects))
        with Progress(load_s, f"{load_s / 60:.1f} minutes under load, plus the starts of servers.") as progress:
            visits = visit_all(subjects, plan, payloads=bodies, work=work, on_progress=progress.update)
            progress.update("computing intervals, drawing", load_s)
            found = report.build_report(
                subjects, plan, visits, machine=facts, traffic=traffic, command=command_line(), created=now()
            )
            files.write_report(out, found, visits)
    print(found["verdict"]["sentence"])
    print(f"Report: {out / files.PAGE}")
    conclude(found, conditions, junit, page=out / files.PAGE)


def knees(
    subjects: Sequence[Subject],
    plan: KneePlan,
    *,
    texts: Path | None,
    out: Path,
    overwrite: bool,
    cores: tuple[int, ...] | None,
) -> None:
    """Find the knee of each service, write the report, say the verdict.

    Raises:
        UsageError: ``out`` cannot be used.
        Failure: a service broke.
    """
    files.check_target(out, overwrite=overwrite, ours={knee_report.JSON, knee_report.MARKDOWN, knee_report.PAGE})
    facts = machine.describe_machine()
    most = len(subjects) * (MAX_STEPS + 1)
    with _working(subjects, texts, seed=plan.seed, out=out) as (work, bodies, traffic):
        told = f"At most {most} rates of {plan.warmup_s + plan.seconds:g} s."
        with Progress(most, told) as progress:
            found = []
            done = itertools.count()
            for subject, payload in zip(subjects, bodies, strict=True):
                found.append(
                    find_knee(
                        subject,
                        plan,
                        payloads=payload,
                        work=work,
                        cores=cores,
                        on_progress=lambda doing: progress.update(doing, next(done) if "/s" in doing else 0),
                    )
                )
            written = knee_report.build_knee(
                subjects, plan, found, machine=facts, traffic=traffic, command=command_line(), created=now()
            )
            knee_report.write_knee(out, written)
    for clause in written["verdict"]["clauses"]:
        print(f"{clause}.")
    print(f"Report: {out / knee_report.PAGE}")


@contextmanager
def _working(
    subjects: Sequence[Subject], texts: Path | None, *, seed: int, out: Path
) -> Iterator[tuple[Path, list[Path], dict[str, Any]]]:
    """A folder for the time of the measurement, each service's requests in it, and what they are made of."""
    chosen, labels, traffic = choose_texts(texts, seed=seed)
    try:
        with terminable(), tempfile.TemporaryDirectory(prefix="robal-loadtest-") as name:
            work = Path(name)
            bodies = []
            for number, subject in enumerate(subjects):
                asked = payloads.payloads(chosen, labels=labels, protocol=protocol(subject.api, model=subject.model))
                bodies.append(work / f"payloads.{number}.jsonl")
                digest = payloads.save_payloads(bodies[-1], asked)
                traffic.setdefault("sha256", digest)
            yield work, bodies, traffic
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the servers are stopped and no report was written to {out}.") from None


def command_line() -> str:
    """What repeats this."""
    return shlex.join(["robal", *sys.argv[1:]])


def now() -> str:
    """For a report."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def choose_texts(texts: Path | None, *, seed: int) -> tuple[list[str], list[str] | None, dict[str, Any]]:
    """The texts, their right labels if known, and where they came from."""
    count = payloads.DEFAULT_COUNT
    if texts is None:
        return payloads.synthetic_texts(count, seed=seed), None, {"source": "synthetic", "count": count}
    chosen, labels = payloads.texts_from_file(texts, count, seed=seed)
    return chosen, labels, {"source": f"lines of {texts}", "count": count}


def conclude(found: dict[str, Any], conditions: Sequence[str], junit: Path | None, *, page: Path) -> None:
    """Judge a report: raise Failure if it is not valid or a condition does not hold."""
    verdicts = [assertions.check(condition, found) for condition in conditions]
    if junit is not None:
        write_atomic(junit, assertions.junit(verdicts, found))
    for verdict in verdicts:
        print(f"{'holds' if verdict.problem is None else 'FAILS'}: {verdict.condition}")
    if not found["verdict"]["valid"]:
        raise Failure(f"the load test is not valid; {page} shows why.")
    broken = [verdict for verdict in verdicts if verdict.problem is not None]
    if broken:
        told = "; ".join(f"{verdict.condition} does not hold ({verdict.problem})" for verdict in broken)
        raise Failure(f"{told}.")


@contextmanager
def terminable() -> Iterator[None]:
    """Treat a polite kill and a closed terminal like Ctrl-C: no server may be left behind."""
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
