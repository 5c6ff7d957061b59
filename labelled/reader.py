"""Labelled and unlabelled files to rows, by the same rules in training, evaluation and prediction.

- A text must be a string with something other than white space in it; the words null, NA and nan are text. Of a
  pair, one side may be empty: the row still has two segments.
- A label is the exact string in the file: 007, 07 and 7 are three classes, and whether labels look like numbers never
  decides the task. JSON's 1 and "1" are one class, true and false are the classes "true" and "false". The layouts of
  several labels are in ``labelled.targets``.
- A label that is blank, or the mark ``nan`` that spreadsheets and data frames leave for "nothing", is missing.
- All rows that cannot be used are reported at once with line, row and reason. The reading stops then, or leaves them
  out and counts them when ``skip_bad_rows`` is set.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from contract.encoding import Text
from contract.errors import DataError
from contract.scores import ProblemType
from contract.storage import sha256_file
from labelled.records import Number, Record, Table, kind_name
from labelled.tables import files_of, open_table, pick
from labelled.targets import TargetReader, encodable

PAIR_COLUMNS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question", "sentence"),
)
"""Usual names of the two columns of a pair; a file that has both is a file of pairs."""
TEXT_COLUMNS = (
    *("text", "sentence", "content", "review", "document", "comment", "utterance", "message", "tweet"),
    *("query", "question", "prompt", "body", "title"),
)
"""Usual names of the text column, first one wins."""
LABEL_COLUMNS = ("label", "labels", "category", "class", "target", "intent", "sentiment", "topic")
"""Usual names of the label column, first one wins."""
SCORE_COLUMNS = ("score", "similarity", "rating", *LABEL_COLUMNS)
"""Usual names of the column of numbers in regression, first one wins."""
SHOWN_PROBLEMS = 10
EMPTY_TEXT, MISSING_TEXT = "the text is empty", "the text is missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """How files are read; the same for every file of a command."""

    text_column: str | None = None
    """Column of the text; None looks for a usual name."""
    pair_column: str | None = None
    """Column of the second text; None looks for the usual pairs unless ``text_column`` is given."""
    label_column: str | None = None
    """Column of the label; None looks for a usual name. In multi-label data it may be several, with commas between."""
    header: bool = True
    """Whether the first line of a CSV or TSV file names the columns; else columns are "0", "1", ..."""
    encoding: str = "utf-8"
    """Text encoding of CSV, TSV and JSONL files."""
    delimiter: str | None = None
    """Separator of CSV and TSV files; None is a comma for .csv and a tab for the others."""
    quoted: bool | None = None
    """Whether cells are quoted; None means yes for .csv and no for the others."""
    label_separator: str | None = None
    """Splits a string into several labels in multi-label data; None takes a string as one label."""
    multi_hot: bool = False
    """Whether a list of multi-label data says 0 or 1 for every class, instead of naming classes."""
    skip_bad_rows: bool = False
    """Leave out rows that cannot be used, and count them, instead of stopping."""


class Row(NamedTuple):
    """One usable row. A tuple, because a file may have millions."""

    text: Text
    labels: tuple[str, ...]
    """The exact label strings of the file: one, or any number in multi-label data, or none without labels."""
    value: float
    """The target of regression; 0.0 in classification."""
    row: int
    line: int | None

    @property
    def place(self) -> str:
        """Where the row is, for a message."""
        return Record(self.row, self.line, {}).place


class BadRow(NamedTuple):
    """One row that cannot be used."""

    record: Record
    reason: str


@dataclass(slots=True)
class Problems:
    """Rows that cannot be used: the first few in words, and their number."""

    total: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, record: Record, reason: str) -> None:
        """Note one row."""
        self.total += 1
        if len(self.shown) < SHOWN_PROBLEMS:
            self.shown.append(f"{record.place}: {reason}")

    def report(self, path: Path, rows: int) -> str:
        """All of it as the text of an error, one row a line."""
        more = [f"... and {self.total - len(self.shown)} more"] if self.total > len(self.shown) else []
        head = (
            f"{path}: {self.total} of {rows} rows cannot be used; mend them or pass --skip-bad-rows to leave them out:"
        )
        return "\n  ".join([head, *self.shown, *more])


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A file that was read whole."""

    path: Path
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    """The columns that were used: text, the second text if there is one, label or labels."""
    problems: Problems
    """What was left out under ``skip_bad_rows``."""
    sha256: str
    """Of the file; of a dataset folder, of the digests of its Arrow files in their order."""
    size_bytes: int = 0
    classes: tuple[str, ...] = ()
    """Every class in order, where the file itself says them."""

    def label_counts(self) -> dict[str, int]:
        """Rows of each label, by the exact string of the file."""
        return dict(Counter(label for row in self.rows for label in row.labels))

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the data, for the checkpoint's record."""
        return {
            "file": self.path.name,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "rows": len(self.rows),
            "skipped_rows": self.problems.total,
            "columns": list(self.columns),
            "label_counts": self.label_counts(),
        }


class RowReader:
    """The rows of one file as a stream. Bad rows gather in ``problems``; they raise at the end unless skipped.

    Args:
        path: the data file.
        options: how it is read.
        problem_type: what a label must look like; None reads texts only.
    """

    def __init__(self, path: Path, options: DataOptions, problem_type: ProblemType | None) -> None:
        self.path = path
        self.problems = Problems()
        self._options = options
        self.problem_type = problem_type
        self._table = open_table(
            path,
            encoding=options.encoding,
            header=options.header,
            delimiter=options.delimiter,
            quotes=options.quoted,
        )
        self._text, self._pair = _text_columns(self._table, path, options)
        self._text_names = tuple(name for name in (self._text, self._pair) if name is not None)
        labels = () if problem_type is None else _label_columns(self._table, path, options, problem_type)
        self._targets = TargetReader(
            labels,
            problem_type,
            separator=options.label_separator,
            multi_hot=options.multi_hot,
            names=self._table.classes.get(labels[0], ()) if labels else (),
        )
        self.columns = (*self._text_names, *labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class in order, where the file itself says them; known after the first row."""
        return self._targets.classes

    def __iter__(self) -> Iterator[Row]:
        """Usable rows in order.

        Raises:
            DataError: after the last row if some cannot be used and they are not skipped, or if none is left.
        """
        used = total = 0
        for row in self.outcomes():
            total += 1
            if isinstance(row, Row):
                used += 1
                yield row
            else:
                self.problems.add(row.record, row.reason)
        if total == 0:
            raise DataError(f"{self.path} has a header and no rows.")
        if self.problems.total and not self._options.skip_bad_rows:
            raise DataError(self.problems.report(self.path, total))
        if used == 0:
            raise DataError(f"{self.path} has no usable row; the first problem: {self.problems.shown[0]}.")

    def outcomes(self) -> Iterator[Row | BadRow]:
        """Every row in order: usable, or with the reason why it is not. Nothing is gathered and nothing raised."""
        for record in self._table.records:
            row = self._row(record)
            yield BadRow(record, row) if isinstance(row, str) else row

    def _row(self, record: Record) -> Row | str:
        """The row, or why it cannot be used."""
        number, line, values, problem = record
        if problem is not None:
            return problem
        texts = []
        for name in self._text_names:
            value = values.get(name)
            if type(value) is not str:
                return self._no_text(name, record)
            if not encodable(value):
                return "the text holds half of a surrogate pair (a cut emoji?)"
            texts.append(value)
        if not any(map(str.strip, texts)):
            return EMPTY_TEXT
        text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
        target = self._targets.read(values)
        if isinstance(target, str):
            return target
        return Row(text, target[0], target[1], number, line)

    def _no_text(self, name: str, record: Record) -> str:
        """Why a value is not a text."""
        value = record.values.get(name)
        if value is None and name not in record.values:
            return f"no {name!r}"
        if value is None and self._pair is None:
            return MISSING_TEXT
        shown = f" {value}" if isinstance(value, int | float | Number) else ""
        return f"{name!r} is the {kind_name(value)}{shown}; a string was expected"


def read_dataset(path: Path, options: DataOptions, problem_type: ProblemType) -> Dataset:
    """Read a whole labelled file.

    Raises:
        DataError: the file or some of its rows cannot be used; see ``RowReader``.
    """
    reader = RowReader(path, options, problem_type)
    rows = tuple(reader)
    files = files_of(path)
    digests = [sha256_file(file) for file in files]
    return Dataset(
        path=path,
        rows=rows,
        columns=reader.columns,
        problems=reader.problems,
        sha256=digests[0] if files == [path] else hashlib.sha256("".join(digests).encode()).hexdigest(),
        size_bytes=sum(file.stat().st_size for file in files),
        classes=reader.classes,
    )


def _text_columns(table: Table, path: Path, options: DataOptions) -> tuple[str, str | None]:
    def take(wanted: str | None, usual: tuple[str, ...], flag: str) -> str:
        return pick(table, path, wanted, usual, "text", flag)

    text, pair = options.text_column, options.pair_column
    if text is None and pair is None:
        folded = {column.strip().casefold() for column in table.columns}
        for first, second in PAIR_COLUMNS:
            if first in folded and second in folded:
                return take(first, (), "--text-column"), take(second, (), "--pair-column")
    if text is None and not options.header and len(table.columns) <= 2:
        text = "0"
    first = take(text, TEXT_COLUMNS + tuple(first for first, _ in PAIR_COLUMNS[1:]), "--text-column")
    return first, None if pair is None else take(pair, (), "--pair-column")


def _label_columns(table: Table, path: Path, options: DataOptions, problem_type: ProblemType) -> tuple[str, ...]:
    label = options.label_column
    if label is None and not options.header and len(table.columns) == 2:
        label = "1"
    if label is not None and problem_type == "multi_label_classification" and label not in table.columns:
        names = [name.strip() for name in label.split(",")]
        if len(names) > 1:
            return tuple(pick(table, path, name, (), "label", "--label-column") for name in names)
    usual = SCORE_COLUMNS if problem_type == "regression" else LABEL_COLUMNS
    return (pick(table, path, label, usual, "label", "--label-column"),)
