"""``robal evaluate`` and ``robal predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

# torch, scikit-learn and onnxruntime are imported inside the commands: they take seconds, and --help needs none
from contract.errors import Interrupted
from finetune.options import (
    DATA,
    Delimiter,
    Encoding,
    LabelColumn,
    LabelNames,
    LabelSeparator,
    MultiHot,
    NoHeader,
    Overwrite,
    PairColumn,
    Precision,
    Quoted,
    SkipBadRows,
    TextColumn,
)
from labelled.reader import DataOptions


def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="One or more checkpoints or bundles; each is compared with the first.",
            metavar="CHECKPOINT|BUNDLE...",
            show_default=False,
        ),
    ],
    data: Annotated[Path, typer.Option(help="Labelled file.", rich_help_panel=DATA, show_default=False)],
    training_data: Annotated[
        bool,
        typer.Option(
            "--training-data", help="Measure also on the file that a model was trained on.", rich_help_panel=DATA
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as one JSON object.")] = False,
    precision: Precision = "fp32",
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
) -> None:
    """Score checkpoints or bundles on a labelled file, and say whether one is really better than another.

    A checkpoint runs in PyTorch, a bundle in onnxruntime; the texts and the figures are made by the same code. Labels
    that were renamed in training are renamed here by themselves.

        robal evaluate runs/spam --data test.csv

        robal evaluate bundles/spam --data test.csv --json

        robal evaluate runs/old runs/new --data test.csv

    Figures come with the middle 95 % of a bootstrap over the rows; two models are compared on the same rows by
    McNemar's exact test and a paired bootstrap.
    """
    from rich.console import Console

    from contract.errors import DataError
    from finetune.compare import compare, in_words
    from finetune.evaluate import score_file
    from finetune.progress import counting
    from finetune.report import print_figures
    from finetune.scorer import open_scorer
    from labelled.labels import parse_renames

    if not data.exists():
        raise DataError(f"{data} does not exist.")
    renames = parse_renames(label_names)
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
    answers = []
    for model in models:
        scorer = open_scorer(model, precision)
        with counting(f"scoring {model}", None) as advance:
            scored = score_file(scorer, data, options, renames=renames, advance=advance, training_data=training_data)
        answers.append((scorer, scored))
    comparisons = [compare(answers[0], answer) for answer in answers[1:]]
    if as_json:
        each = [scored.figures for _, scored in answers]
        printed = each[0] if len(each) == 1 else {"models": each, "comparisons": comparisons}
        typer.echo(json.dumps(printed, indent=2, ensure_ascii=False, allow_nan=False))
        return
    screen = Console(highlight=False)
    for model, (scorer, scored) in zip(models, answers, strict=True):
        figures = scored.figures
        print_figures(figures, scorer.labels, f"{model} on {data}", screen)
        if figures["truncated_rows"]:
            limit = scorer.text_encoder.max_length
            rows, tokens = figures["truncated_rows"], figures["cut_tokens"]
            screen.print(f"{rows} texts are longer than {limit} tokens and lost their end, {tokens:,} tokens together.")
        if figures["data"]["skipped_rows"]:
            screen.print(f"{figures['data']['skipped_rows']} rows could not be used and were left out.")
        if scorer.trained_on.get(scored.dataset.sha256) == "dev":
            note = f"{data} chose the best checkpoint of {model}: new texts give slightly lower figures."
            screen.print(note, soft_wrap=True, markup=False)
    for comparison in comparisons:
        for line in in_words(comparison):
            screen.print(line, soft_wrap=True, markup=False)


def predict(
    model: Annotated[
        Path, typer.Argument(help="A checkpoint or a bundle.", metavar="CHECKPOINT|BUNDLE", show_default=False)
    ],
    data: Annotated[
        Path, typer.Option(help="File of texts, with or without labels.", rich_help_panel=DATA, show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="File to write: .csv or .jsonl. It appears when it is complete.", show_default=False)
    ],
    all_scores: Annotated[
        bool, typer.Option("--all-scores", help="Write the score of every class, not only of the best.")
    ] = False,
    overwrite: Overwrite = False,
    precision: Precision = "fp32",
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    quoted: Quoted = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Label a file of texts with a checkpoint or a bundle.

    Each line of the output has the row's number in the data file, the text, the label and its score.

        robal predict runs/spam --data new.csv --out labelled.csv

        robal predict bundles/spam --data lines.txt --no-header --out labelled.jsonl
    """
    from contract.errors import DataError
    from finetune.predictions import count_rows, write_predictions
    from finetune.progress import counting
    from finetune.scorer import open_scorer
    from finetune.targets import check_predictions

    if not data.exists():
        raise DataError(f"{data} does not exist.")
    check_predictions(out, data, overwrite=overwrite)
    options = DataOptions(
        text_column=text_column,
        pair_column=pair_column,
        header=not no_header,
        encoding=encoding,
        delimiter=delimiter,
        quoted=quoted,
        skip_bad_rows=skip_bad_rows,
    )
    rows = count_rows(data, options)
    scorer = open_scorer(model, precision)
    try:
        with counting("labelling", rows) as advance:
            written = write_predictions(scorer, data, options, out, all_scores=all_scores, advance=advance)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {out} was not written.") from None
    typer.echo(
        f"{out}: {written.rows} rows labelled, {written.skipped} left out, {written.truncated} cut to "
        f"{scorer.text_encoder.max_length} tokens."
    )
