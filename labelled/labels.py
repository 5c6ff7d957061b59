"""Classes: their order, their names, and the check that every file has only classes that the model knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contract.errors import DataError, UsageError
from labelled.reader import Dataset, Row

SHOWN_LABELS = 10


class LabelSet:
    """Classes in order, and the way from a file's label to a class.

    Args:
        names: class names in the order of the model's logits.
        renames: the name of a class for a label of the files, where they differ (``0`` -> ``benign``).
    """

    def __init__(self, names: tuple[str, ...], renames: Mapping[str, str] | None = None) -> None:
        self.names = names
        self.renames = dict(renames or {})
        position = {name: index for index, name in enumerate(names)}
        self._index = position | {raw: position[name] for raw, name in self.renames.items() if name in position}

    @classmethod
    def from_data(cls, data: Dataset, renames: Mapping[str, str] | None = None, least: int = 2) -> LabelSet:
        """The classes of a training file: sorted, by number if all labels are whole or decimal numbers.

        A file that says its classes itself (a column for each, lists of 0 and 1, the names of a data set) decides their
        order, and has also those without a row.

        Args:
            data: the training file.
            renames: new names for labels of the file; two labels with one new name become one class.
            least: fewest classes that make sense.

        Raises:
            DataError: there are fewer classes, or a renamed label does not occur.
        """
        renames = renames or {}
        found = set(data.label_counts()) | set(data.classes)
        if unknown := sorted(set(renames) - found):
            have = ", ".join(map(repr, in_order(found)[:SHOWN_LABELS]))
            raise DataError(
                f"--label-names renames {unknown[0]!r}, which is not a label of {data.path}; it has {have}."
            )
        ordered = data.classes or in_order(found)
        names = tuple(dict.fromkeys(renames.get(label, label) for label in ordered))
        used = tuple(dict.fromkeys(renames.get(label, label) for label in data.label_counts()))
        if len(used) < least:
            only = f"only the class {used[0]!r}" if used else "no label"
            raise DataError(
                f"{data.path} has {only} in the column {data.columns[-1]!r}; training needs at least {least} classes."
            )
        return cls(names, renames)

    def index(self, label: str) -> int:
        """The class of a label that ``check`` has seen."""
        return self._index[label]

    def check(self, data: Dataset, source: str) -> None:
        """Raise DataError if the file has labels that are no class, naming label, file, first row and count.

        Args:
            data: the file.
            source: where the classes come from, for the message.
        """
        first: dict[str, Row] = {}
        counts: Counter[str] = Counter()
        for row in data.rows:
            for label in row.labels:
                if label not in self._index:
                    first.setdefault(label, row)
                    counts[label] += 1
        if not counts:
            return
        seen = [
            f"{label!r} ({counts[label]} row{'s' * (counts[label] > 1)}, first {first[label].place})"
            for label in in_order(counts)
        ]
        more = f" and {len(seen) - SHOWN_LABELS} more" if len(seen) > SHOWN_LABELS else ""
        have = ", ".join(map(repr, self.names[:SHOWN_LABELS])) + (", ..." if len(self.names) > SHOWN_LABELS else "")
        raise DataError(
            f"{data.path} has labels that {source} never had: {', '.join(seen[:SHOWN_LABELS])}{more}; "
            f"the classes are {have}. Correct the labels, or map them with --label-names FROM=TO."
        )


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels by number if all are plain numbers, else by code point."""
    labels = list(labels)
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def parse_renames(text: str | None) -> dict[str, str]:
    """``0=benign,1=injection`` as a mapping from the files' labels to class names.

    Raises:
        UsageError: a part has no ``=``, an empty side, or repeats a label.
    """
    renames: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        raw, mark, name = (piece.strip() for piece in part.partition("="))
        if not (raw and mark and name):
            raise UsageError(
                f"--label-names has the part {part!r}; LABEL=NAME was expected, as in 0=benign,1=injection."
            )
        if raw in renames:
            raise UsageError(f"--label-names names the label {raw!r} twice.")
        renames[raw] = name
    return renames


def recorded_renames(record: Mapping[str, Any]) -> dict[str, str]:
    """The renames a model was trained with, from a checkpoint's record or a bundle's provenance."""
    for where in (record, record.get("checkpoint")):
        task = where.get("task") if isinstance(where, Mapping) else None
        if isinstance(task, Mapping) and task.get("label_names"):
            return dict(task["label_names"])
    return {}


def unnamed(names: Sequence[str]) -> dict[str, str]:
    """Renames for a model whose classes have no names but LABEL_0, LABEL_1, ...: it knows them as 0, 1, ... too."""
    numbers = {str(number): f"LABEL_{number}" for number in range(len(names))}
    return numbers if set(numbers.values()) == set(names) else {}
