"""Labelled and unlabelled files to rows, by the same rules in training, evaluation and prediction.

- A text must be a string with something other than white space in it; the words null, NA and nan are text. Of a
  pair, one side may be empty: the row still has two segments.
- A label is the exact string in the file: 007, 07 and 7 are three classes, and whether labels look like numbers never
  decides the task. JSON's 1 and "1" are one class, true and false are the classes "true" and "false".
- A label that is blank, or the mark ``nan`` that spreadsheets and data frames leave for "nothing", is missing.
- All rows that cannot be used are reported at once with line, row and reason. The reading stops then, or leaves them
  out and counts them when ``skip_bad_rows`` is set.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from contract.encoding import Text
from contract.errors import DataError
from contract.scores import ProblemType
from contract.storage import sha256_file
from labelled.tables import Number, Record, Table, kind_name, open_table, pick

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
MISSING_LABELS = ("", "nan", "NaN")
SHOWN_PROBLEMS = 10
EMPTY_TEXT, MISSING_TEXT, NO_LABEL = "the text is empty", "the text is missing", "no label"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """How files are read; the same for every file of a command."""

    text_column: str | None = None
    """Column of the text; None looks for a usual name."""
    pair_column: str | None = None
    """Column of the second text; None looks for the usual pairs unless ``text_column`` is given."""
    label_column: str | None = None
    """Column of the label; None looks for a usual name."""
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
    """The columns that were used: text, the second text if there is one, label."""
    problems: Problems
    """What was left out under ``skip_bad_rows``."""
    sha256: str

    def label_counts(self) -> dict[str, int]:
        """Rows of each label, by the exact string of the file."""
        return dict(Counter(label for row in self.rows for label in row.labels))

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the data, for the checkpoint's record."""
        return {
            "file": self.path.name,
            "sha256": self.sha256,
            "size_bytes": self.path.stat().st_size,
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
            quoted=options.quoted,
        )
        self._text, self._pair = _text_columns(self._table, path, options)
        self._text_names = tuple(name for name in (self._text, self._pair) if name is not None)
        self._label = None if problem_type is None else _label_column(self._table, path, options, problem_type)
        self.columns = tuple(name for name in (self._text, self._pair, self._label) if name is not None)

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
        if record.problem is not None:
            return record.problem
        texts = []
        for name in self._text_names:
            value = record.values.get(name)
            if type(value) is not str:
                return self._no_text(name, record)
            if not _encodable(value):
                return "the text holds half of a surrogate pair (a cut emoji?)"
            texts.append(value)
        if not any(map(str.strip, texts)):
            return EMPTY_TEXT
        text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
        target = self._target(record)
        if isinstance(target, str):
            return target
        return Row(text, target[0], target[1], record.row, record.line)

    def _no_text(self, name: str, record: Record) -> str:
        """Why a value is not a text."""
        value = record.values.get(name)
        if value is None and name not in record.values:
            return f"no {name!r}"
        if value is None and self._pair is None:
            return MISSING_TEXT
        shown = f" {value}" if isinstance(value, int | float | Number) else ""
        return f"{name!r} is the {kind_name(value)}{shown}; a string was expected"

    def _target(self, record: Record) -> tuple[tuple[str, ...], float] | str:
        """(labels, value), or why there is none."""
        if self._label is None:
            return (), 0.0
        raw = record.values.get(self._label)
        if raw is None:
            return NO_LABEL
        match self.problem_type:
            case "regression":
                value = number_of(raw)
                return f"the label {raw!r} is not a number" if value is None else ((), value)
            case "multi_label_classification":
                return _several(raw, self._options.label_separator)
        if isinstance(raw, list | tuple):
            return "the label is a list; pass --task multi_label if a text may have several labels"
        label = label_of(raw)
        return ((label,), 0.0) if label is not None else _no_label(raw)


def read_dataset(path: Path, options: DataOptions, problem_type: ProblemType) -> Dataset:
    """Read a whole labelled file.

    Raises:
        DataError: the file or some of its rows cannot be used; see ``RowReader``.
    """
    reader = RowReader(path, options, problem_type)
    rows = tuple(reader)
    return Dataset(path=path, rows=rows, columns=reader.columns, problems=reader.problems, sha256=sha256_file(path))


def label_of(raw: Any) -> str | None:
    """The class name of a raw value, or None if it is missing or cannot be one."""
    if type(raw) is str:
        return raw if raw.strip() and raw not in MISSING_LABELS and _encodable(raw) else None
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float):
        raw = "nan" if math.isnan(raw) else repr(raw)
    if isinstance(raw, int):
        raw = str(raw)
    if not isinstance(raw, str) or raw in MISSING_LABELS or not raw.strip() or not _encodable(raw):
        return None
    return str(raw)


def number_of(raw: Any) -> float | None:
    """The finite number of a raw value, or None."""
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        return None
    try:
        value = float(raw)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _no_label(raw: Any) -> str:
    if isinstance(raw, str) and not raw.strip():
        return NO_LABEL
    if isinstance(raw, str | float):
        return f"the label is {str(raw)!r}, which marks a missing value" if _encodable(str(raw)) else "broken label"
    return f"the label is a {kind_name(raw)}"


def _several(raw: Any, separator: str | None) -> tuple[tuple[str, ...], float] | str:
    """A list is a list of labels, an empty list none, a string one label or several between separators."""
    if isinstance(raw, str) and not isinstance(raw, Number):
        parts = [raw] if separator is None else [part.strip() for part in raw.split(separator)]
        raw = [part for part in parts if part.strip()]
    elif not isinstance(raw, list | tuple):
        raw = [raw]
    labels = [label_of(item) for item in raw]
    for label, item in zip(labels, raw, strict=True):
        if label is None:
            return _no_label(item)
    return tuple(dict.fromkeys(label for label in labels if label is not None)), 0.0


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


def _label_column(table: Table, path: Path, options: DataOptions, problem_type: ProblemType) -> str:
    label = options.label_column
    if label is None and not options.header and len(table.columns) == 2:
        label = "1"
    usual = SCORE_COLUMNS if problem_type == "regression" else LABEL_COLUMNS
    return pick(table, path, label, usual, "label", "--label-column")


def _encodable(text: str) -> bool:
    if text.isascii():  # most are, and Python knows it without looking
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
