"""``robal loadtest``: measure and compare services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from loadtests import options as given
from loadtests.map_cli import sweep_command

app = typer.Typer()
group = typer.Typer(no_args_is_help=True, help="Measure and compare services.")
app.add_typer(group, name="loadtest")


group.command("sweep")(sweep_command)


class Shape(NamedTuple):
    """How long a comparison is."""

    rounds: int
    seconds: float
    warmup_s: float


PRESETS = {"quick": Shape(4, 2, 0.5), "standard": Shape(6, 8, 1), "paper": Shape(14, 10, 1)}
"""For two bundles of base size with the default users: about 2, 5 and 12 minutes."""


@app.callback()
def _room() -> None:
    """Keep the group even though it is the only one."""


@group.callback()
def _group() -> None:
    """Keep sub-commands even when only one is registered."""


@group.command("run")
def run_command(
    target: Annotated[str, typer.Argument(help="Address of a running service, or a bundle folder to serve.")],
    out: given.Out = Path("runs/loadtest"),
    users: given.Users = None,
    rate: given.Rate = None,
    burstiness: given.Burstiness = 1.0,
    trace: given.Trace = None,
    max_in_flight: given.MaxInFlight = 256,
    processes: given.Processes = 1,
    seconds: Annotated[float, typer.Option(min=0.5, max=86400, help="Measured time of each load.")] = 20,
    warmup: Annotated[float, typer.Option(min=0, max=600, help="Seconds of load before that, not measured.")] = 2,
    threads: given.Threads = None,
    precision: given.Precision = "fp32",
    texts: given.Texts = None,
    target_ms: given.Target = None,
    api: given.Api = None,
    model: given.Model = None,
    allow_remote: given.AllowRemote = False,
    pin: given.Pin = False,
    conditions: given.Asserts = None,
    junit: given.Junit = None,
    seed: given.Seed = 0,
    overwrite: given.Overwrite = False,
) -> None:
    """Load one service and report latency, throughput and failures.

    A closed loop (--users) shows how fast it is; an open one (--rate, --trace) what its users wait at that traffic.

    A long --seconds is a soak test: the report shows latency over time, and for a bundle the memory before and after.

    Example: robal loadtest run http://127.0.0.1:3000 --rate 40 --target-ms 100 --assert 'p99_ms < 100'
    """
    from loadtests.compare import Plan
    from loadtests.experiment import loads, measure, pinned_cores
    from loadtests.machine import usable_cores
    from loadtests.subjects import open_subjects

    asked = loads(
        users=users,
        rate=rate,
        trace=trace,
        burstiness=burstiness,
        max_in_flight=max_in_flight,
        processes=processes,
        warmup_s=warmup,
        seconds=seconds,
    )
    count = threads or max(1, usable_cores() - 1)
    subjects = open_subjects(
        [target], precision=precision, threads=count, apis=api or (), model=model, allow_remote=allow_remote
    )
    plan = Plan(loads=asked, rounds=1, threads=count, seed=seed, target_ms=target_ms, cores=pinned_cores(pin))
    measure(subjects, plan, texts=texts, out=out, overwrite=overwrite, conditions=conditions or (), junit=junit)


@group.command("compare")
def compare_command(
    targets: Annotated[
        list[str], typer.Argument(help="Bundle folders, or addresses of running services; the first is the baseline.")
    ],
    out: given.Out = Path("runs/loadtest"),
    preset: Annotated[
        str, typer.Option(help="How long: quick (2 minutes for two bundles), standard (5) or paper (12).")
    ] = "quick",
    users: given.Users = None,
    rate: given.Rate = None,
    burstiness: given.Burstiness = 1.0,
    trace: given.Trace = None,
    max_in_flight: given.MaxInFlight = 256,
    processes: given.Processes = 1,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Visits to each, in the order A B B A ...; fewer than 3 give no interval."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.5, max=3600, help="Measured time per visit and load.")] = None,
    warmup: Annotated[
        float | None, typer.Option(min=0, max=600, help="Seconds of load before that, not measured.")
    ] = None,
    threads: given.Threads = None,
    precision: given.Precision = "fp32",
    texts: given.Texts = None,
    margin: given.Margin = 0.05,
    target_ms: given.Target = None,
    api: given.Api = None,
    model: given.Model = None,
    allow_remote: given.AllowRemote = False,
    pin: given.Pin = False,
    conditions: given.Asserts = None,
    junit: given.Junit = None,
    seed: given.Seed = 0,
    overwrite: given.Overwrite = False,
) -> None:
    """Visit services in turn under the same load, and tell what differs.

    Each visit to a bundle starts a fresh server on loopback. The report says how large they are, how fast, and whether
    the difference is real.

    Exit code 1 if the numbers must not be believed: failures, or a busy generator.

    Example: robal loadtest compare bundles/roberta bundles/albert --out runs/report
    """
    from contract.errors import UsageError
    from loadtests.compare import Plan
    from loadtests.experiment import loads, measure, pinned_cores
    from loadtests.machine import usable_cores
    from loadtests.subjects import open_subjects

    if preset not in PRESETS:
        raise UsageError(f"--preset is {preset!r}; one of {', '.join(PRESETS)} was expected.")
    if len(targets) < 2:
        raise UsageError("compare needs two services or more; `robal loadtest run` measures one.")
    shape = PRESETS[preset]
    asked = loads(
        users=users,
        rate=rate,
        trace=trace,
        burstiness=burstiness,
        max_in_flight=max_in_flight,
        processes=processes,
        warmup_s=shape.warmup_s if warmup is None else warmup,
        seconds=seconds or shape.seconds,
    )
    count = threads or max(1, usable_cores() - 1)
    subjects = open_subjects(
        targets, precision=precision, threads=count, apis=api or (), model=model, allow_remote=allow_remote
    )
    plan = Plan(
        loads=asked,
        rounds=rounds or shape.rounds,
        threads=count,
        seed=seed,
        margin=margin,
        target_ms=target_ms,
        cores=pinned_cores(pin),
    )
    measure(subjects, plan, texts=texts, out=out, overwrite=overwrite, conditions=conditions or (), junit=junit)


@group.command("knee")
def knee_command(
    targets: Annotated[list[str], typer.Argument(help="Bundle folders, or addresses of running services.")],
    target_ms: Annotated[float, typer.Option("--target-ms", min=0.001, help="The promise: latency in milliseconds.")],
    out: Annotated[Path, typer.Option(help="Folder for knee.html, .md and .json.")] = Path("runs/knee"),
    percent: Annotated[float, typer.Option(min=50, max=99.9, help="Share of the arrivals it is given to.")] = 99,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Measured time of each rate.")] = 10,
    warmup: Annotated[float, typer.Option(min=0, max=600, help="Seconds of load before that, not measured.")] = 1,
    threads: given.Threads = None,
    precision: given.Precision = "fp32",
    texts: given.Texts = None,
    api: given.Api = None,
    model: given.Model = None,
    allow_remote: given.AllowRemote = False,
    pin: given.Pin = False,
    seed: given.Seed = 0,
    overwrite: given.Overwrite = False,
) -> None:
    """Find the highest rate of arrivals at which a service keeps a latency, without a failure.

    Arrivals are Poisson and do not wait for each other. Up to ten rates are tried for each service.

    Example: robal loadtest knee bundles/albert --target-ms 200
    """
    from loadtests.experiment import knees, pinned_cores
    from loadtests.knee import KneePlan
    from loadtests.machine import usable_cores
    from loadtests.subjects import open_subjects

    count = threads or max(1, usable_cores() - 1)
    subjects = open_subjects(
        targets, precision=precision, threads=count, apis=api or (), model=model, allow_remote=allow_remote
    )
    plan = KneePlan(target_ms=target_ms, percent=percent, seconds=seconds, warmup_s=warmup, threads=count, seed=seed)
    knees(subjects, plan, texts=texts, out=out, overwrite=overwrite, cores=pinned_cores(pin))


@group.command("report")
def report_command(
    before: Annotated[Path, typer.Argument(help="report.json of an earlier run or comparison.")],
    after: Annotated[Path, typer.Argument(help="report.json of a later one.")],
    margin: given.Margin = 0.05,
) -> None:
    """Compare two reports of different days or versions: what changed, and whether it is more than chance.

    Services and loads are matched by name. Runs of different days share no round, so the intervals are wider than those
    of one comparison, and a change of the machine is in them.

    Exit code 1 if a latency got slower for sure.

    Example: robal loadtest report last-week/report.json today/report.json
    """
    from contract.errors import Failure
    from loadtests.history import changes, read_report, render_changes

    found = changes(read_report(before), read_report(after), margin=margin)
    print(render_changes(found))
    if slower := [change for change in found if change.verdict == "slower"]:
        raise Failure(f"{len(slower)} of {len(found)} figures got worse for sure.")
