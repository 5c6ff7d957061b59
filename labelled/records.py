"""What every reader of a data file delivers: records, and the columns they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Number(str):
    """A number of a JSON file in the characters it is written with: 1 and "1" name the same class, 1.0 another."""

    __slots__ = ()


class Record(NamedTuple):
    """One row of a file: its values by column, or what is wrong with it. A tuple, because a file may have millions."""

    row: int
    """1 for the first row of data."""
    line: int | None
    """Line of the file on which the row begins, counted from 1; None for files without lines."""
    values: dict[str, Any]
    problem: str | None = None

    @property
    def place(self) -> str:
        """Where the row is, for a message."""
        return f"row {self.row}" if self.line is None else f"line {self.line} (row {self.row})"


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns, and its records as they are read."""

    columns: tuple[str, ...]
    records: Iterator[Record]
    hint: str = ""
    """What to try when a wanted column is not among ``columns``; a clause, or empty."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the classes of a column, in their order, where the file itself says them."""


def kind_name(value: Any) -> str:
    """What a raw value is, in the words of a JSON file."""
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), ((Number, int, float), "number"), (str, "string"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "list" if isinstance(value, list | tuple) else type(value).__name__
