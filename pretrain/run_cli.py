"""``robal pretrain run`` and ``robal pretrain plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

SHAPE, RECIPE, BUDGET, DATA, CARE = "Model", "Recipe", "Budget", "Samples", "Upkeep"


def run_command(
    store: Annotated[
        Path, typer.Argument(help="Folder made by `robal pretrain prepare`.", metavar="STORE", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint.", show_default=False)],
    preset: Annotated[
        str | None,
        typer.Option(
            help="Shape with random weights: mini-bert, mini-roberta, mini-albert, bert-base, roberta-base, ... "
            "Default: the mini shape of the tokenizer's family.",
            rich_help_panel=SHAPE,
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model folder to go on from instead: further pretraining on your own text.",
            rich_help_panel=SHAPE,
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Executed layers, if not the shape's.", rich_help_panel=SHAPE, show_default=False)
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(
            help="Width of the model; feed-forward, heads and embeddings keep their proportion to it.",
            rich_help_panel=SHAPE,
            show_default=False,
        ),
    ] = None,
    embedding_size: Annotated[
        int | None,
        typer.Option(help="Width E of the embedding tables.", rich_help_panel=SHAPE, show_default=False),
    ] = None,
    sharing: Annotated[
        str | None,
        typer.Option(help="What layers share: all, attention, ffn or none.", rich_help_panel=SHAPE, show_default=False),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Of hidden vectors and attention.", rich_help_panel=SHAPE, show_default=False),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Named recipe: bert, roberta-256, roberta-2k, roberta-8k, roberta-base, roberta-large, "
            "roberta-fairseq, albert, mini-bert, mini-roberta, mini-albert. Default: that of the shape. "
            "`robal pretrain plan` shows the source of each value.",
            rich_help_panel=RECIPE,
            show_default=False,
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="adamw, lamb-google or lamb-nvidia.", rich_help_panel=RECIPE, show_default=False),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak, at the end of the warm-up.", rich_help_panel=RECIPE, show_default=False)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Full-length sequences in an update; shorter ones make it larger, so that the tokens stay the same.",
            rich_help_panel=RECIPE,
            show_default=False,
        ),
    ] = None,
    warmup_steps: Annotated[
        int | None, typer.Option(help="Updates of linear warm-up.", rich_help_panel=RECIPE, show_default=False)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Not for biases and norms.", rich_help_panel=RECIPE, show_default=False)
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="Largest gradient norm; 0 does not clip.", rich_help_panel=RECIPE, show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, samples, masks and dropout.", rich_help_panel=RECIPE)] = 0,
    steps: Annotated[
        int | None,
        typer.Option(help="Updates; the warm-up keeps its share.", rich_help_panel=BUDGET, show_default=False),
    ] = None,
    sequences: Annotated[
        int | None,
        typer.Option(
            help="Sequences to train on in all: shrinks batch and steps of a published recipe alike. With --minutes, "
            "the clock decides when to stop.",
            rich_help_panel=BUDGET,
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Wall-clock budget: warm-up and decay follow the clock.", rich_help_panel=BUDGET, show_default=False
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="mlm (masked tokens alone), mlm+nsp (next sentence) or mlm+sop (sentence order).",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="segment-pair, sentence-pair, full-sentences or doc-sentences.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    masking: Annotated[
        str | None, typer.Option(help="dynamic or static.", rich_help_panel=DATA, show_default=False)
    ] = None,
    masking_unit: Annotated[
        str | None,
        typer.Option(help="token, word or ngram: what is masked as a whole.", rich_help_panel=DATA, show_default=False),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(help="Static masking: different masks of a sample.", rich_help_panel=DATA, show_default=False),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of a sequence, special ones included.", rich_help_panel=DATA, show_default=False
        ),
    ] = None,
    micro_tokens: Annotated[
        int,
        typer.Option(
            help="Tokens that go through the model at once; more need memory, the result is the same.",
            rich_help_panel=CARE,
        ),
    ] = 8192,
    dtype: Annotated[
        str, typer.Option(help="auto, fp32, or bf16 where the hardware has it.", rich_help_panel=CARE)
    ] = "auto",
    padded: Annotated[
        bool,
        typer.Option("--padded", help="Pad the sequences of a batch instead of packing them.", rich_help_panel=CARE),
    ] = False,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Compile the layers first (minutes).", rich_help_panel=CARE)
    ] = False,
    parallel: Annotated[
        str,
        typer.Option(help="Under torchrun: ddp (a copy on each rank) or fsdp (a slice).", rich_help_panel=CARE),
    ] = "ddp",
    save_minutes: Annotated[
        float, typer.Option(help="Minutes between two checkpoints; 0: only --save-steps.", rich_help_panel=CARE)
    ] = 10.0,
    save_steps: Annotated[
        int, typer.Option(help="Updates between two checkpoints; 0: by time alone.", rich_help_panel=CARE)
    ] = 0,
    evaluate_steps: Annotated[
        int, typer.Option(help="Updates between two held-out evaluations; 0: at the end.", rich_help_panel=CARE)
    ] = 0,
    spike: Annotated[
        float, typer.Option(help="Stop if the loss jumps by so many nats; 0: never.", rich_help_panel=CARE)
    ] = 2.5,
    ledger_ids: Annotated[
        bool,
        typer.Option("--ledger-ids", help="Name every sample in run/ledger.jsonl.", rich_help_panel=CARE),
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard.", rich_help_panel=CARE, show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the unfinished run in --out, if there is one.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")] = False,
) -> None:
    """Pretrain an encoder on a store and write a checkpoint for `robal finetune --model`.

    Every choice of the BERT, RoBERTa and ALBERT papers is an option; a recipe sets them all.

        robal pretrain run runs/store --preset mini-albert --minutes 30 --out runs/albert

        robal pretrain run runs/store --preset mini-bert --objective mlm+nsp --format segment-pair --steps 2000 --out
        runs/bert

        torchrun --nproc-per-node 8 -m robal pretrain run runs/store --preset roberta-base --out runs/roberta

    A run that was stopped or killed goes on with the same command and --resume: with the same samples in the same
    order, and on one process with the same weights to the bit.
    """
    from pretrain.distributed import end_rank
    from pretrain.options import Choices, resolve
    from pretrain.run import pretrain
    from pretrain.settings import ShapeChanges
    from pretrain.store import open_store

    opened = open_store(store)
    choices = Choices(
        preset=preset,
        model=model,
        changes=ShapeChanges(
            layers=layers,
            hidden_size=hidden_size,
            embedding_size=embedding_size,
            layer_sharing=sharing,
            dropout=dropout,
        ),
        recipe=recipe,
        values={
            "optimizer": optimizer,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "warmup_steps": warmup_steps,
            "weight_decay": weight_decay,
            "clip_norm": clip_norm,
            "steps": steps,
            "objective": objective,
            "format": format_,
            "masking": masking,
            "unit": masking_unit,
            "copies": copies,
            "window": max_length,
        },
        sequences=sequences,
        minutes=minutes,
        seed=seed,
        micro_tokens=micro_tokens,
        dtype=dtype,
        packed=not padded,
        compiled=compile_,
        parallel=parallel,
        save_minutes=save_minutes,
        save_steps=save_steps,
        evaluate_steps=evaluate_steps,
        spike=spike,
        ledger_ids=ledger_ids,
        tensorboard=tensorboard,
    )
    settings, upkeep, device = resolve(choices, opened)
    finished = pretrain(settings, upkeep, opened, out, device=device, go_on=resume, overwrite=overwrite)
    if finished.leads:
        for name, value in finished.heldout.items():
            typer.echo(f"held-out {name.replace('_', ' ')}: {value:.4g}")
        typer.echo(f"{finished.out}: {finished.state.step:,} steps, {finished.state.tokens:,} tokens")
        typer.echo(f"robal finetune --model {finished.out} --train ...")
    end_rank()


def plan_command(
    shape: Annotated[
        str,
        typer.Argument(help="A preset, such as roberta-base, or a config.json.", metavar="PRESET|CONFIG"),
    ],
    recipe: Annotated[
        str | None, typer.Option(help="Named recipe. Default: that of the shape.", show_default=False)
    ] = None,
    hardware: Annotated[
        str, typer.Option(help="v100, a100, h100, h200, rtx4090, or this: measure this machine.")
    ] = "h200",
    devices: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1,
    utilisation: Annotated[float, typer.Option(min=0.01, max=1, help="Share of the peak that will be reached.")] = 0.45,
    micro_tokens: Annotated[int, typer.Option(min=1, help="Tokens on a device at once.")] = 32768,
    steps: Annotated[int | None, typer.Option(help="Updates, if not the recipe's.", show_default=False)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Sequences in an update.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a pretraining will cost before it runs, and where each value of its recipe comes from.

    robal pretrain plan roberta-base --hardware h200 --devices 8

    robal pretrain plan mini-albert --hardware this
    """
    from pretrain.plan_report import plan_for, print_plan

    result = plan_for(
        shape,
        recipe,
        hardware=hardware,
        devices=devices,
        utilisation=utilisation,
        micro_tokens=micro_tokens,
        steps=steps,
        batch_size=batch_size,
    )
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        print_plan(result)
