"""Texts that a file holds more than once. A model remembers them: they weigh more than others and, in dev, flatter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from labelled.reader import Row
from labelled.scan import same_text as alike


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats:
    """What is repeated among some rows."""

    exact: int
    """Rows that an earlier one equals, text and label."""
    alike: int
    """Rows that an earlier one equals when case and white space do not count; the exact ones among them."""
    contradicting: int
    """Texts, case and white space aside, with more than one label."""

    def __str__(self) -> str:
        return (
            f"{self.alike} rows repeat an earlier one ({self.exact} to the letter) and {self.contradicting} texts have "
            "different labels"
        )


def same_text(row: Row) -> str:
    """A key that is equal for texts that differ only in case and white space."""
    return alike(row.text)


def find_repeats(rows: Sequence[Row]) -> Repeats:
    """Count them."""
    labels: dict[str, set[object]] = defaultdict(set)
    for row in rows:
        labels[same_text(row)].add(_target(row))
    return Repeats(
        exact=len(rows) - len({(row.text, _target(row)) for row in rows}),
        alike=len(rows) - sum(map(len, labels.values())),
        contradicting=sum(len(targets) > 1 for targets in labels.values()),
    )


def without_repeats(rows: Sequence[Row], dev: Sequence[Row]) -> tuple[Row, ...]:
    """The first of rows that are alike, and none whose text is among the dev rows."""
    seen: set[object] = set()
    held_out = {same_text(row) for row in dev}
    kept = []
    for row in rows:
        text = same_text(row)
        if text not in held_out and (key := (text, _target(row))) not in seen:
            seen.add(key)
            kept.append(row)
    return tuple(kept)


def _target(row: Row) -> object:
    return (row.labels, row.value)
