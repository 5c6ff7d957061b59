"""``robal finetune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

# torch, scikit-learn and onnxruntime are imported inside the commands: they take seconds, and --help needs none
from contract.errors import Interrupted
from finetune.config import TrainingConfig
from finetune.options import (
    DATA,
    MODEL,
    OPTIMISER,
    Delimiter,
    Encoding,
    LabelColumn,
    LabelNames,
    LabelSeparator,
    MultiHot,
    NoHeader,
    PairColumn,
    Quoted,
    SkipBadRows,
    TextColumn,
)
from finetune.recipe_options import (
    ClassWeights,
    EmaDecay,
    FocalGamma,
    FreezeLayers,
    LabelSmoothing,
    LayerDecay,
    RDrop,
    ReinitLayers,
    Retries,
    Seeds,
)
from labelled.reader import DataOptions

DEFAULT = TrainingConfig()


def finetune(
    train: Annotated[
        Path,
        typer.Option(
            help="Labelled file: .csv, .tsv, .txt, .jsonl (also .gz, .zst, .bz2, .xz), .parquet, .arrow, .feather, or "
            "a folder of Hugging Face datasets.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="A Hugging Face or robal model folder (BERT, RoBERTa, ALBERT) to start from, or a preset: a shape "
            "with random weights and a tokenizer learned from the training text. mini-roberta, mini-albert and "
            "mini-bert train on a laptop; bert-base, roberta-base, albert-base, ... exist too.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Checkpoint folder to write. It holds the best checkpoint so far at every moment.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ],
    dev: Annotated[
        Path | None,
        typer.Option(
            help="Labelled file to choose the best checkpoint by. Without it, --dev-fraction of the training rows is "
            "set aside: by class, and never a text that also occurs in training.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        Literal["single_label", "multi_label", "regression"],
        typer.Option(
            help="What a label is: one class, any number of classes, or a number. Never guessed from the data.",
            rich_help_panel=DATA,
        ),
    ] = DEFAULT.task,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    quoted: Quoted = None,
    label_separator: LabelSeparator = None,
    multi_hot: MultiHot = False,
    label_names: LabelNames = None,
    skip_bad_rows: SkipBadRows = False,
    dev_fraction: Annotated[
        float,
        typer.Option(
            help="Share of the training rows that is set aside without --dev; 0 trains without dev rows.",
            rich_help_panel=DATA,
        ),
    ] = DEFAULT.dev_fraction,
    drop_repeats: Annotated[
        bool,
        typer.Option(
            "--drop-repeats",
            help="Leave out training rows that repeat another one, case and white space aside, and those whose text is "
            "in dev.",
            rich_help_panel=DATA,
        ),
    ] = DEFAULT.drop_repeats,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a checkpoint in --out, when the first new one is complete.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted or killed run of the same command, to the same weights bit for bit; start "
            "one if there is none.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    save_minutes: Annotated[
        float,
        typer.Option(
            help="Between two saves of what --resume needs; it is saved after each evaluation and at Ctrl-C too.",
            rich_help_panel=MODEL,
        ),
    ] = DEFAULT.save_minutes,
    new_head: Annotated[
        bool,
        typer.Option(
            "--new-head",
            help="Train a new classification layer although the model has one. Needed when its classes differ.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    tokenizer: Annotated[
        Literal["bpe", "unigram", "wordpiece"],
        typer.Option(
            help="Kind of tokenizer that a preset learns. The same run gives the same tokenizer, except unigram.",
            rich_help_panel=MODEL,
        ),
    ] = "bpe",
    log: Annotated[
        Path | None,
        typer.Option(
            help="Write every step and evaluation to this file as JSON lines.",
            rich_help_panel=MODEL,
            show_default="the name of --out with .log.jsonl, beside it",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Most passes over the training rows.",
            rich_help_panel=OPTIMISER,
            show_default="3 to 20, more for small files",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate.",
            rich_help_panel=OPTIMISER,
            show_default="3e-5 x 768 / hidden size; with random weights 1e-4 x 768 / hidden size",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(help="Rows of one optimiser step.", rich_help_panel=OPTIMISER)
    ] = DEFAULT.batch_size,
    accumulate: Annotated[
        int,
        typer.Option(
            help="Parts in which a batch goes through the model: less memory, the same result.",
            rich_help_panel=OPTIMISER,
        ),
    ] = DEFAULT.accumulate,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of a text; longer texts lose their end.",
            rich_help_panel=OPTIMISER,
            show_default="what the model has positions for",
        ),
    ] = None,
    warmup: Annotated[
        float, typer.Option(help="Share of the steps in which the learning rate rises.", rich_help_panel=OPTIMISER)
    ] = DEFAULT.warmup,
    schedule: Annotated[
        Literal["linear", "polynomial"],
        typer.Option(help="How the learning rate falls to 0 afterwards.", rich_help_panel=OPTIMISER),
    ] = DEFAULT.schedule,
    power: Annotated[
        float, typer.Option(help="Exponent of the polynomial schedule.", rich_help_panel=OPTIMISER)
    ] = DEFAULT.power,
    weight_decay: Annotated[
        float,
        typer.Option(help="Decoupled weight decay; biases and layer norms have none.", rich_help_panel=OPTIMISER),
    ] = DEFAULT.weight_decay,
    clip_norm: Annotated[
        float, typer.Option(help="Longest gradient of a step; 0 does not clip.", rich_help_panel=OPTIMISER)
    ] = DEFAULT.clip_norm,
    evals_per_epoch: Annotated[
        int, typer.Option(help="Evaluations on the dev rows in each epoch.", rich_help_panel=OPTIMISER)
    ] = DEFAULT.evals_per_epoch,
    patience: Annotated[
        int,
        typer.Option(
            help="Evaluations without a better result after which training stops; 0 never stops early.",
            rich_help_panel=OPTIMISER,
        ),
    ] = DEFAULT.patience,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What the best checkpoint is chosen by: macro_f1, accuracy, micro_f1 (multi_label), spearman or "
            "pearson (regression), loss.",
            rich_help_panel=OPTIMISER,
            show_default="macro_f1, micro_f1 or spearman, by task",
        ),
    ] = None,
    dtype: Annotated[
        Literal["auto", "fp32", "bf16"],
        typer.Option(
            help="Arithmetic of the matrix products; auto takes bf16 where the machine gains from it.",
            rich_help_panel=OPTIMISER,
        ),
    ] = DEFAULT.dtype,
    seed: Annotated[
        int,
        typer.Option(
            help="Decides split, new weights, order and dropout: the same seed gives the same checkpoint on the same "
            "machine.",
            rich_help_panel=OPTIMISER,
        ),
    ] = DEFAULT.seed,
    layer_decay: LayerDecay = DEFAULT.layer_decay,
    reinit_layers: ReinitLayers = DEFAULT.reinit_layers,
    freeze_layers: FreezeLayers = DEFAULT.freeze_layers,
    label_smoothing: LabelSmoothing = DEFAULT.label_smoothing,
    r_drop: RDrop = DEFAULT.r_drop,
    ema_decay: EmaDecay = DEFAULT.ema_decay,
    class_weights: ClassWeights = DEFAULT.class_weights,
    focal_gamma: FocalGamma = DEFAULT.focal_gamma,
    seeds: Seeds = DEFAULT.seeds,
    retries: Retries = DEFAULT.retries,
) -> None:
    """Train a classifier on a labelled file.

    From random weights, with a tokenizer of its own:

        robal finetune --train a.csv --dev b.csv --model mini-albert --out runs/a

    From a pretrained model, with a dev set that is set aside by itself:

        robal finetune --train a.jsonl --model models/roberta-base --out runs/a

    The checkpoint is a Hugging Face folder with robal.json, which records data, options and figures. It goes on with
    [bold]robal export[/bold].
    """
    config = TrainingConfig(
        task=task,
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        accumulate=accumulate,
        warmup=warmup,
        schedule=schedule,
        power=power,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        max_length=max_length,
        dev_fraction=dev_fraction,
        drop_repeats=drop_repeats,
        evals_per_epoch=evals_per_epoch,
        patience=patience,
        metric=metric,
        seed=seed,
        dtype=dtype,
        save_minutes=save_minutes,
        layer_decay=layer_decay,
        reinit_layers=reinit_layers,
        freeze_layers=freeze_layers,
        label_smoothing=label_smoothing,
        r_drop=r_drop,
        ema_decay=ema_decay,
        class_weights=class_weights,
        focal_gamma=focal_gamma,
        seeds=seeds,
        retries=retries,
    )
    options = DataOptions(
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        header=not no_header,
        encoding=encoding,
        delimiter=delimiter,
        quoted=quoted,
        label_separator=label_separator,
        multi_hot=multi_hot,
        skip_bad_rows=skip_bad_rows,
    )
    from finetune.inputs import read_inputs
    from finetune.targets import check_checkpoint, check_log
    from labelled.labels import parse_renames

    check_checkpoint(out, overwrite=overwrite, resume=resume)
    log = log or out.absolute().with_name(f"{out.absolute().name}.log.jsonl")
    check_log(log)
    try:
        inputs = read_inputs(
            train,
            dev,
            options,
            problem_type=config.problem_type,
            renames=parse_renames(label_names),
            dev_fraction=dev_fraction,
            drop_repeats=drop_repeats,
            seed=seed,
        )
        from finetune.run import run_training
        from finetune.start import open_start

        start = open_start(model, inputs, config, new_head=new_head, kind=tokenizer)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted before training began; {out} is as it was before.") from None
    finished = run_training(start, config, options, out=out, log=log, resume=resume)

    from rich.console import Console

    from finetune.report import print_figures

    screen = Console(highlight=False)
    progress = finished.progress
    if progress.best is not None and progress.best.figures:
        print_figures(progress.best.figures, finished.labels, "dev", screen)
    for note in finished.notes:
        screen.print(note, soft_wrap=True, markup=False)
    early = ", stopped early" if progress.stopped_early else ""
    screen.print(
        f"{out}: the checkpoint of step {progress.best.step if progress.best else 0} of {progress.steps}{early}, after "
        f"{progress.train_seconds:.0f} s of training steps. Every step is in {log}.",
        soft_wrap=True,
        markup=False,
    )
