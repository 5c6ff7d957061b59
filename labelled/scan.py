"""One pass over a labelled file that keeps numbers of each row, never its text: a million rows take some 50 MB.

Texts are compared by 64-bit hashes. Among a million different texts the chance that any two share one is 3 in a
hundred million.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.encoding import Text, TextEncoder
from labelled.oddities import oddities
from labelled.reader import Row, RowReader

CHUNK_ROWS = 2048
"""Rows between two signs of life, and texts that are tokenised together."""
MOST_REASONS, MORE_REASONS = 100, "other reasons"
"""Reasons may quote values of the file: so many are told apart."""

Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """What a file holds; arrays have one entry for each usable row, in order."""

    path: Path
    columns: tuple[str, ...]
    place: str
    """What places count: "line", or "row" in files without lines."""
    places: Numbers
    exact: Numbers
    """Hash of each text."""
    alike: Numbers
    """Hash of each text without regard to case and white space."""
    targets: Numbers
    """Place in ``kinds`` of what a row is labelled with."""
    kinds: tuple[tuple[str, ...] | float, ...]
    """Every set of labels of the file, sorted inside; in regression every value."""
    classes: tuple[str, ...]
    """Every class in order, where the file itself says them."""
    characters: Numbers
    words: Numbers
    tokens: Numbers
    """Special tokens included, before truncation; empty without a tokenizer."""
    unknown: Numbers
    """Tokens that stand for what the vocabulary lacks; empty without a tokenizer."""
    read: Numbers
    """Hash of what a model reads of each text that is too long for it, 0 for others; empty without a tokenizer."""
    specials: int
    """Special tokens of each row; 0 without a tokenizer."""
    odd: Mapping[str, Numbers]
    """Places of the rows that show an oddity."""
    bad: Mapping[str, Numbers]
    """Places of the rows that cannot be used, by reason."""

    @property
    def rows(self) -> int:
        """Usable rows."""
        return len(self.places)

    @property
    def label_rows(self) -> dict[str, int]:
        """Rows of each label, in order of first occurrence; empty in regression."""
        found: dict[str, int] = {}
        for kind, count in zip(self.kinds, np.bincount(self.targets, minlength=len(self.kinds)), strict=True):
            for label in kind if isinstance(kind, tuple) else ():
                found[label] = found.get(label, 0) + int(count)
        return found

    @property
    def values(self) -> Numbers:
        """Targets of regression; empty in classification."""
        numbers = [kind for kind in self.kinds if not isinstance(kind, tuple)]
        return np.array(numbers, dtype=np.float64)[self.targets] if numbers else np.zeros(0)

    def places_of(self, label: str) -> Numbers:
        """Where a label occurs."""
        having = [number for number, kind in enumerate(self.kinds) if isinstance(kind, tuple) and label in kind]
        return np.asarray(self.places[np.isin(self.targets, having)])


def same_text(text: Text) -> str:
    """A key that is equal for texts that differ only in case and white space."""
    if isinstance(text, str):
        return " ".join(text.casefold().split())
    return "\0".join(" ".join(part.casefold().split()) for part in text)


def scan(
    reader: RowReader, text_encoder: TextEncoder | None = None, advance: Callable[[int], None] = lambda rows: None
) -> Scan:
    """Read a file once.

    Args:
        reader: of a labelled file; nothing of it was read yet.
        text_encoder: counts tokens, if given.
        advance: called with the number of rows that were done since the last call.
    """
    kept = _Kept(regression=reader.problem_type == "regression")
    outcomes = reader.outcomes()
    while chunk := list(islice(outcomes, CHUNK_ROWS)):
        rows = kept.add(chunk)
        if text_encoder is not None:
            for tokens, unknown, read in text_encoder.measure([row.text for row in rows]):
                kept.tokens.append(tokens)
                kept.unknown.append(unknown)
                kept.read.append(read)
        advance(len(chunk))
    return Scan(
        path=reader.path,
        columns=reader.columns,
        place=kept.place,
        places=np.array(kept.places),
        exact=np.array(kept.exact),
        alike=np.array(kept.alike),
        targets=np.array(kept.targets),
        kinds=tuple(kept.kinds),
        classes=reader.classes,
        characters=np.array(kept.characters),
        words=np.array(kept.words),
        tokens=np.array(kept.tokens),
        unknown=np.array(kept.unknown),
        read=np.array(kept.read),
        specials=0 if text_encoder is None or kept.last_text is None else text_encoder.specials(kept.last_text),
        odd={oddity: np.array(places) for oddity, places in kept.odd.items()},
        bad={reason: np.array(places) for reason, places in kept.bad.items()},
    )


class _Kept:
    """Arrays that grow with the rows; see ``Scan``."""

    def __init__(self, regression: bool) -> None:
        self._regression = regression
        self.place = "line"
        self.places, self.exact, self.alike = array("q"), array("q"), array("q")
        self.targets, self.characters, self.words = array("i"), array("i"), array("i")
        self.tokens, self.unknown, self.read = array("i"), array("i"), array("q")
        self.last_text: Text | None = None
        self.kinds: dict[tuple[str, ...] | float, int] = {}
        self.odd: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self.bad: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def add(self, chunk: Sequence[Any]) -> list[Row]:
        """Note some rows; those that can be used come back."""
        rows = []
        kinds = self.kinds
        for outcome in chunk:
            if not isinstance(outcome, Row):
                record, reason = outcome
                known = reason in self.bad or len(self.bad) < MOST_REASONS
                self.bad[reason if known else MORE_REASONS].append(self._place(record.row, record.line))
                continue
            rows.append(outcome)
            text, labels, value, number, line = outcome
            place = self._place(number, line)
            alike = same_text(text)
            whole = text if isinstance(text, str) else "\n".join(text)
            kind = value if self._regression else labels if len(labels) == 1 else tuple(sorted(labels))
            self.places.append(place)
            self.exact.append(hash(text))
            self.alike.append(hash(alike))
            self.targets.append(kinds.setdefault(kind, len(kinds)))
            self.characters.append(len(whole))
            self.words.append(alike.count(" ") + 1 if text is whole else len(whole.split()))
            for oddity in oddities(whole):
                self.odd[oddity].append(place)
        if rows:
            self.last_text = rows[-1].text
        return rows

    def _place(self, row: int, line: int | None) -> int:
        if line is None:
            self.place = "row"
            return row
        return line
