"""What a row is labelled with: one class, any number of classes, or a number.

Several labels come in four layouts, and which one a file has is never guessed:

- a list of names, in JSON, Parquet or Arrow, or written out as text: ``["sport", "politics"]``, ``['sport']``;
- one string, which is one label, or several between separators;
- ``multi_hot``: a list, also written out as text, that says 0 or 1 for every class: ``[0, 1, 0]``, ``[0. 1. 0.]``;
- a column for each label, which says 0 or 1.

A list of numbers that cannot be names, because 0 or 1 stands in it twice, is refused without ``multi_hot``.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from contract.scores import ProblemType
from labelled.records import Number, kind_name

MISSING_LABELS = ("", "nan", "NaN")
NO_LABEL = "no label"
TRUTH = {"0": False, "1": True, "0.0": False, "1.0": True, "0.": False, "1.": True, "false": False, "true": True}
"""How 0 and 1 are written, without regard to case."""

Target: TypeAlias = tuple[tuple[str, ...], float]
"""Labels, and the value of regression."""


class TargetReader:
    """What the records of one file are labelled with.

    Args:
        columns: of the label; several hold 0 or 1 each; none if there are no labels.
        problem_type: what a label must look like.
        separator: splits a string into several labels.
        multi_hot: a list says 0 or 1 for every class.
        names: classes that the file itself names, in order.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        problem_type: ProblemType | None,
        *,
        separator: str | None = None,
        multi_hot: bool = False,
        names: tuple[str, ...] = (),
    ) -> None:
        self.classes = columns if len(columns) > 1 else names
        """Every class in order, where the file says them: of columns, of lists of 0 and 1 (after the first row)."""
        self._columns = columns
        self._problem_type = problem_type
        self._separator = separator
        self._multi_hot = multi_hot

    def read(self, values: Mapping[str, Any]) -> Target | str:
        """The target of a record, or why there is none."""
        if not self._columns:
            return (), 0.0
        if len(self._columns) > 1:
            return self._of_columns(values)
        raw = values.get(self._columns[0])
        if raw is None:
            return NO_LABEL
        if self._problem_type == "single_label_classification":
            if isinstance(raw, list | tuple):
                return "the label is a list; pass --task multi_label if a text may have several labels"
            label = label_of(raw)
            return ((label,), 0.0) if label is not None else _no_label(raw)
        if self._problem_type == "regression":
            value = number_of(raw)
            return f"the label {raw!r} is not a number" if value is None else ((), value)
        return self._of_hot(raw) if self._multi_hot else _several(raw, self._separator)

    def _of_columns(self, values: Mapping[str, Any]) -> Target | str:
        chosen = []
        for column in self._columns:
            truth = _truth(values.get(column))
            if truth is None:
                return f"{column!r} is {values.get(column)!r}; 0 or 1 was expected"
            if truth:
                chosen.append(column)
        return tuple(chosen), 0.0

    def _of_hot(self, raw: Any) -> Target | str:
        found = raw if isinstance(raw, list | tuple) else _written_list(raw)
        if found is None:
            return f"the label {raw!r} is not a list; one 0 or 1 for every class was expected, as in [0, 1, 0]"
        hot = [_truth(item) for item in found]
        if None in hot:
            return f"the label {raw!r} holds something other than 0 and 1"
        if not self.classes:
            self.classes = tuple(map(str, range(len(hot))))
        if len(hot) != len(self.classes):
            return f"the label has {len(hot)} numbers where {len(self.classes)} were expected"
        return tuple(name for name, truth in zip(self.classes, hot, strict=True) if truth), 0.0


def label_of(raw: Any) -> str | None:
    """The class name of a raw value, or None if it is missing or cannot be one."""
    if type(raw) is str:
        return raw if raw not in MISSING_LABELS and raw.strip() and encodable(raw) else None
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float):
        raw = "nan" if math.isnan(raw) else repr(raw)
    if isinstance(raw, int):
        raw = str(raw)
    if not isinstance(raw, str) or raw in MISSING_LABELS or not raw.strip() or not encodable(raw):
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


def encodable(text: str) -> bool:
    """False for a text with a lone surrogate."""
    if text.isascii():  # most are, and Python knows it without looking
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_label(raw: Any) -> str:
    if isinstance(raw, str) and not raw.strip():
        return NO_LABEL
    if isinstance(raw, str | float):
        return f"the label is {str(raw)!r}, which marks a missing value" if encodable(str(raw)) else "broken label"
    return f"the label is a {kind_name(raw)}"


def _several(raw: Any, separator: str | None) -> Target | str:
    """A list is a list of labels, an empty list none, a string one label or several between separators."""
    if isinstance(raw, str) and not isinstance(raw, Number):
        written = _written_list(raw) if separator is None else None
        if written is None:
            parts = [raw] if separator is None else [part.strip() for part in raw.split(separator)]
            written = [part for part in parts if part.strip()]
        raw = written
    elif not isinstance(raw, list | tuple):
        raw = [raw]
    numbers = [item for item in raw if isinstance(item, int | float | Number)]
    if len(numbers) == len(raw) > len({str(number) for number in numbers}) and None not in map(_truth, numbers):
        return f"the label [{', '.join(map(str, raw))}] says 0 or 1 for each class; pass --multi-hot"
    labels = [label_of(item) for item in raw]
    for label, item in zip(labels, raw, strict=True):
        if label is None:
            return _no_label(item)
    return tuple(dict.fromkeys(label for label in labels if label is not None)), 0.0


def _written_list(raw: Any) -> list[Any] | None:
    """The list that a string spells as JSON, Python or numpy write one; None if it spells none."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        found = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    except ValueError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            bare = text[1:-1].split()
            found = [Number(item) for item in bare] if all(item in TRUTH for item in bare) else None
    return found if isinstance(found, list) else None


def _truth(raw: Any) -> bool | None:
    return TRUTH.get(str(raw).strip().casefold())
