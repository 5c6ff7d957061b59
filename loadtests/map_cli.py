"""``robal loadtest sweep``: the regime map."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from contract.errors import Interrupted, UsageError
from loadtests import options as given


class Grid(NamedTuple):
    """How fine a map is."""

    lengths: str
    batches: str
    rounds: int
    cycles: int
    max_tokens: int


PRESETS = {
    "quick": Grid("8,32,128", "1,8", 3, 1, 256),
    "standard": Grid("8,32,128,512", "1,8", 4, 2, 1024),
    "paper": Grid("8,16,32,64,128,256,512", "1,4,16", 6, 3, 2048),
}
"""For two bundles of base size, both precisions, one thread: about 2, 8 and 60 minutes."""


def sweep_command(
    bundles: Annotated[list[Path], typer.Argument(help="Bundle folders; the first is the baseline.")],
    out: Annotated[Path, typer.Option(help="Folder for sweep.html, .md, .json and the visits so far.")] = Path(
        "runs/sweep"
    ),
    preset: Annotated[
        str, typer.Option(help="How fine: quick (2 minutes for two bundles), standard (8) or paper (60).")
    ] = "standard",
    lengths: Annotated[str | None, typer.Option(help="Tokens of a text, as in 8,32,128,512.")] = None,
    batches: Annotated[str | None, typer.Option(help="Texts in a call, as in 1,8.")] = None,
    precisions: Annotated[str, typer.Option(help="Graphs of the bundles to serve, as in fp32,int8.")] = "fp32",
    threads: Annotated[str, typer.Option(help="Threads of the server, as in 1,2.")] = "1",
    rounds: Annotated[int | None, typer.Option(min=1, help="Visits to each; fewer than 3 give no interval.")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Measured passes through all cells in a visit.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Calls of more tokens are left out.")] = None,
    margin: given.Margin = 0.05,
    seed: given.Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew instead of going on in --out.")] = False,
) -> None:
    """Map where one bundle is faster than another: over length, batch, precision and threads.

    Each visit is saved as it ends; the same command goes on where it was interrupted.

    A roofline model predicts the map from bytes, operations and the speed of the memory, and the report says how well.

    Example: robal loadtest sweep bundles/roberta bundles/albert --precisions fp32,int8 --out runs/sweep
    """
    from loadtests import machine, roofline, sweep_files
    from loadtests.experiment import command_line, now, numbers, terminable
    from loadtests.progress import Progress
    from loadtests.subjects import open_subjects
    from loadtests.sweep import SweepPlan, check_cells, sweep
    from loadtests.sweep_report import build_sweep

    if preset not in PRESETS:
        raise UsageError(f"--preset is {preset!r}; one of {', '.join(PRESETS)} was expected.")
    grid = PRESETS[preset]
    plan = SweepPlan(
        lengths=numbers("--lengths", lengths or grid.lengths, 3, 8192, "8,32,128"),
        batches=numbers("--batches", batches or grid.batches, 1, 256, "1,8"),
        precisions=tuple(dict.fromkeys(part.strip() for part in precisions.split(","))),
        threads=numbers("--threads", threads, 1, 256, "1,2"),
        max_tokens=max_tokens or grid.max_tokens,
        rounds=rounds or grid.rounds,
        cycles=cycles or grid.cycles,
        seed=seed,
        margin=margin,
    )
    if len(bundles) < 2:
        raise UsageError("sweep needs two bundles or more; the first is the baseline.")
    check_cells(bundles, plan)
    subjects = open_subjects([str(bundle) for bundle in bundles], precision=plan.precisions[0], threads=1)
    sweep_files.check_target(out, overwrite=overwrite)
    facts = machine.describe_machine()
    try:
        with terminable(), tempfile.TemporaryDirectory(prefix="robal-sweep-") as work:
            bandwidths = {count: roofline.bandwidth(count) for count in plan.threads}
            total = plan.rounds * len(plan.settings) * len(bundles)
            with Progress(total, f"{total} visits of {len(plan.cells)} shapes of a call.") as progress:
                visits = sweep(bundles, plan, folder=out, work=Path(work), on_progress=progress.update)
                progress.update("computing intervals, drawing", total)
                found = build_sweep(
                    subjects,
                    plan,
                    visits,
                    bandwidths=bandwidths,
                    cache_bytes=roofline.cache_bytes(),
                    machine=facts,
                    command=command_line(),
                    created=now(),
                )
                sweep_files.write_sweep(out, found)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the server is stopped, and the same command goes on from {out}.") from None
    for clause in found["verdict"]["clauses"]:
        print(f"{clause}.")
    print(f"Report: {out / sweep_files.PAGE}")
