"""``robal data check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

# numpy, torch and tokenizers are imported inside the command: they take seconds, and --help needs none
from finetune.options import (
    DATA,
    MODEL,
    Delimiter,
    Encoding,
    LabelColumn,
    LabelSeparator,
    MultiHot,
    NoHeader,
    PairColumn,
    Quoted,
    TextColumn,
)
from labelled.reader import DataOptions

data = typer.Typer(no_args_is_help=True, help="Look at labelled files before a training.")


@data.callback()
def _group() -> None:
    """Look at labelled files before a training.

    robal data check train.csv dev.csv
    """


@data.command("check", no_args_is_help=True)
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Labelled files: the training file, then those that go with it, such as dev and test.",
            metavar="FILE...",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Count tokens as this model folder does, or as a preset's tokenizer that is learned from the first "
            "file. Without it, characters and words are counted.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Say what would be cut at so many tokens; needs --model.",
            rich_help_panel=MODEL,
            show_default="what the model has positions for",
        ),
    ] = None,
    task: Annotated[
        Literal["single_label", "multi_label", "regression"],
        typer.Option(help="What a label is: one class, any number of classes, or a number.", rich_help_panel=DATA),
    ] = "single_label",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    quoted: Quoted = None,
    label_separator: LabelSeparator = None,
    multi_hot: MultiHot = False,
) -> None:
    """Report what is in labelled files, and what is wrong with them.

        robal data check train.csv dev.csv test.csv

        robal data check train.csv --model models/roberta-base --max-length 128

    Exit code 0: nothing that would spoil a training. 1: something would; it is marked so: rows that cannot be used,
    a single class, equal texts with different labels, labels that the first file never has, texts of one file in
    another, a tokenizer that cannot read the texts. 2: a file cannot be read.
    """
    from contract.errors import UsageError
    from finetune.config import TASKS
    from finetune.data_report import print_report
    from finetune.progress import counting
    from labelled.check import examine
    from labelled.reader import RowReader
    from labelled.scan import scan

    if max_length is not None and (model is None or max_length < 3):
        raise UsageError(f"--max-length {max_length} counts the tokens of --model: give one, and at least 3 tokens.")
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
    )
    problem_type = TASKS[task]
    readers = [RowReader(file, options, problem_type) for file in files]
    text_encoder = None
    if model is not None:
        from finetune.data_tokenizer import tokenizer_of

        text_encoder = tokenizer_of(model, files[0], options, max_length)
    scans = []
    for file, reader in zip(files, readers, strict=True):
        with counting(f"reading {file}", None) as advance:
            scans.append(scan(reader, text_encoder, advance))
    report = examine(scans, None if text_encoder is None else text_encoder.max_length)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_report(report)
    raise typer.Exit(1 if report.spoils else 0)
