"""``robal loadtest``: measure and compare services on this machine."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import Failure, Interrupted, UsageError

app = typer.Typer()
group = typer.Typer(no_args_is_help=True, help="Measure and compare services on this machine.")
app.add_typer(group, name="loadtest")

MAX_USERS = 256


@app.callback()
def _room() -> None:
    """Keep the group even though it is the only one."""


@group.callback()
def _group() -> None:
    """Keep sub-commands even when only one is registered."""


@group.command("compare")
def compare_command(
    bundle_a: Annotated[Path, typer.Argument(help="The baseline: a bundle folder made by `robal export`.")],
    bundle_b: Annotated[Path, typer.Argument(help="The bundle that is compared with it.")],
    out: Annotated[Path, typer.Option(help="Folder for report.html, .md, .json and the raw requests.")] = Path(
        "runs/loadtest"
    ),
    users: Annotated[
        str, typer.Option(help="Numbers of users who send at once, as in 1,8: a lone user shows latency, many a load.")
    ] = "1,8",
    rounds: Annotated[
        int, typer.Option(min=1, help="Visits to each server, in the order A B B A ...; fewer than 3 give no interval.")
    ] = 6,
    seconds: Annotated[float, typer.Option(min=0.5, max=3600, help="Measured time per visit and number of users.")] = 3,
    warmup: Annotated[float, typer.Option(min=0, max=600, help="Seconds of load before that, not measured.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each server. Default: all cores but one, which is the generator's."),
    ] = None,
    precision: Annotated[str, typer.Option(help="Which graph of the bundles to serve.")] = "fp32",
    texts: Annotated[
        Path | None, typer.Option(help="Your own texts, one a line in UTF-8, instead of synthetic ones.")
    ] = None,
    margin: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Ratios this close to 1, interval included, are equivalent.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Of the traffic and of the intervals.")] = 0,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier report in --out.")] = False,
) -> None:
    """Serve two bundles in turn, load both with the same texts, and tell what differs.

    Each visit starts a fresh server on loopback and drives it with Locust.

    The report says how large both are, how fast, and whether the difference is real.

    Exit code 1 if the numbers must not be believed: failures, or a busy generator.

    Example: robal loadtest compare runs/roberta-bundle runs/albert-bundle --out runs/report
    """
    from loadtests import files, machine, payloads, report  # numpy and matplotlib would slow down --help
    from loadtests.compare import Plan, compare, open_subjects
    from loadtests.progress import Progress

    files.check_target(out, overwrite=overwrite)
    plan = Plan(
        users=parse_users(users),
        rounds=rounds,
        seconds=seconds,
        warmup_s=warmup,
        threads=threads or max(1, machine.usable_cores() - 1),
        seed=seed,
        margin=margin,
    )
    count = payloads.DEFAULT_COUNT
    chosen = payloads.texts_from_file(texts, count, seed=seed) if texts else payloads.synthetic_texts(count, seed=seed)
    subjects = open_subjects((bundle_a, bundle_b), precision=precision, threads=plan.threads)
    facts = machine.describe_machine()
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    try:
        with terminable(), tempfile.TemporaryDirectory(prefix="robal-loadtest-") as name:
            work = Path(name)
            digest = payloads.save_payloads(work / "payloads.jsonl", payloads.payloads(chosen))
            with Progress(plan.load_s) as progress:
                visits = compare(
                    subjects, plan, payloads=work / "payloads.jsonl", work=work, on_progress=progress.update
                )
                progress.update("computing intervals, drawing", plan.load_s)
                found = report.build_report(
                    subjects,
                    plan,
                    visits,
                    machine=facts,
                    traffic={"source": f"lines of {texts}" if texts else "synthetic", "count": count, "sha256": digest},
                    command=shlex.join(["robal", *sys.argv[1:]]),
                    created=created,
                )
                files.write_report(out, found, visits)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the servers are stopped and no report was written to {out}.") from None
    print(found["verdict"]["sentence"])
    print(f"Report: {out / files.PAGE}")
    if not found["verdict"]["valid"]:
        raise Failure(f"the comparison is not valid; {out / files.PAGE} shows why.")


def parse_users(text: str) -> tuple[int, ...]:
    """Numbers of users from ``1,8``, ascending.

    Raises:
        UsageError: not such a list.
    """
    parts = [part.strip() for part in text.split(",")]
    numbers = sorted({int(part) for part in parts if part.isascii() and part.isdigit()})
    if not all(part.isascii() and part.isdigit() for part in parts) or numbers[0] < 1 or numbers[-1] > MAX_USERS:
        raise UsageError(f"--users is {text!r}; numbers from 1 to {MAX_USERS} with commas were expected, as in 1,8.")
    return tuple(numbers)


@contextmanager
def terminable() -> Iterator[None]:
    """Treat a polite kill and a closed terminal like Ctrl-C: no server may be left behind."""
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
