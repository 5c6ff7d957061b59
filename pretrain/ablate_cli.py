"""``robal pretrain ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SCALE, TASK = "Scale", "Task"


def ablate_command(
    store: Annotated[
        Path, typer.Argument(help="Folder made by `robal pretrain prepare`.", metavar="STORE", show_default=False)
    ],
    task: Annotated[
        Path,
        typer.Option(
            help="Labelled file that every run is fine-tuned on, for its score.",
            rich_help_panel=TASK,
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results and the report.", show_default=False)],
    task_dev: Annotated[
        Path | None,
        typer.Option(
            help="Labelled file for the score; without it a part of --task is set aside.",
            rich_help_panel=TASK,
            show_default=False,
        ),
    ] = None,
    finetune: Annotated[
        str,
        typer.Option(
            help="Further options of `robal finetune`, such as '--no-header --epochs 3'.",
            rich_help_panel=TASK,
            show_default=False,
        ),
    ] = "",
    only: Annotated[
        str,
        typer.Option(
            help="Some of the experiments, with commas between: formats, masking, batch, sentence, embedding, depth, "
            "layers. Default: all.",
            show_default=False,
        ),
    ] = "",
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Seeds of every run; two are the least for a spread.", rich_help_panel=SCALE),
    ] = 3,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="For the whole grid: decides how long each run trains. A later call with more goes on.",
            rich_help_panel=SCALE,
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Updates of each run instead.", rich_help_panel=SCALE, show_default=False),
    ] = None,
    hidden_size: Annotated[
        int, typer.Option(min=8, help="Width of the models; everything keeps its proportion.", rich_help_panel=SCALE)
    ] = 256,
    layers: Annotated[
        int, typer.Option(min=1, help="Layers, where an experiment does not vary them.", rich_help_panel=SCALE)
    ] = 6,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Full-length sequences in an update.", rich_help_panel=SCALE)
    ] = 32,
    max_length: Annotated[
        int, typer.Option(min=8, help="Most tokens of a sequence, special ones included.", rich_help_panel=SCALE)
    ] = 128,
    micro_tokens: Annotated[int, typer.Option(min=1, help="Tokens that go through the model at once.")] = 8192,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep the weights of finished runs.")
    ] = False,
) -> None:
    """Rerun the experiments of the RoBERTa and ALBERT papers at mini scale, beside the published numbers.

    Every run is pretrained, looked at on held-out text, and fine-tuned on a labelled file. The report says what the
    seeds allow to say, and no more. An interrupted grid goes on with the same command.

        robal pretrain ablate runs/store --task train.tsv --task-dev dev.tsv --minutes 300 --out runs/ablation

        robal pretrain ablate runs/store --task train.tsv --only sentence --seeds 5 --steps 1000 --out runs/cross
    """
    from contract.errors import DataError
    from encoders.precision import training_device
    from pretrain.ablate import Grid, Sizes, Task, run_grid
    from pretrain.ablate_render import write_report
    from pretrain.ablate_report import build
    from pretrain.grid import experiments
    from pretrain.store import open_store

    for path in (task, task_dev):
        if path is not None and not path.is_file():
            raise DataError(f"{path} is not a file; give a labelled file as for `robal finetune`.")
    grid = Grid(
        store=open_store(store),
        out=out,
        experiments=experiments(tuple(name.strip() for name in only.split(",") if name.strip()), hidden_size),
        seeds=seeds,
        task=Task(train=task.absolute(), dev=None if task_dev is None else task_dev.absolute(), options=finetune),
        sizes=Sizes(hidden=hidden_size, layers=layers, batch_size=batch_size, window=max_length),
        micro_tokens=micro_tokens,
        device=training_device(),
    )
    done, jobs = run_grid(
        grid,
        minutes=minutes,
        steps=steps,
        keep_checkpoints=keep_checkpoints,
        report=lambda tokens: write_report(build(grid, tokens), out),
    )
    typer.echo(f"{out / 'report.html'}: {done} of {jobs} runs")
    if done < jobs:
        typer.echo("The time is spent; the same command with more --minutes goes on.")
