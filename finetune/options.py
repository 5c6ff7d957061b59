"""Options that several commands of this room share, and their panels in ``--help``."""

from __future__ import annotations

from typing import Annotated

import typer

DATA, OPTIMISER, MODEL = "Data", "Training", "Model and output"

TextColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of the text. Found by itself if it is called text, sentence, content, review, ...",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
PairColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of the second text, for pairs. Found by itself for text/text_pair, sentence1/sentence2, "
        "premise/hypothesis, question1/question2, ... unless --text-column is given.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of the label. Found by itself if it is called label, category, class, target, intent, ... In "
        "multi_label data, several columns that say 0 or 1 each: toxic,insult,threat.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="The first line of a CSV or TSV file is data. Columns are then named by position, from 0; a file of two "
        "columns is taken as text, label.",
        rich_help_panel=DATA,
    ),
]
Encoding = Annotated[
    str,
    typer.Option(help="Encoding of CSV, TSV and JSONL files, such as gb18030, cp1252, utf-16.", rich_help_panel=DATA),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates columns, if not a comma in .csv and a tab in .tsv and .txt.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Quoted = Annotated[
    bool | None,
    typer.Option(
        "--quoted/--unquoted",
        help="Whether double quotes wrap cells (the default for .csv) or are ordinary text (.tsv, .txt).",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        help="Splits one cell into several labels in multi_label data, such as '|'. JSONL, Parquet, Arrow hold lists.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
MultiHot = Annotated[
    bool,
    typer.Option(
        "--multi-hot",
        help="A label of multi_label data is a list that says 0 or 1 for every class, such as [0, 1, 0], also written "
        "out in a CSV. The classes are called 0, 1, ... unless the file or --label-names names them.",
        rich_help_panel=DATA,
    ),
]
LabelNames = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL=NAME,...",
        help="Names for the file's labels, such as 0=benign,1=injection. Two labels with one name become one class.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave out rows without text or label or with a wrong number of columns, and count them, instead of "
        "stopping.",
        rich_help_panel=DATA,
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")]
Precision = Annotated[str, typer.Option(help="Which graph of a bundle to run.")]
