"""What is wrong with labelled files, as findings with counts and places.

A finding spoils a training if the training would stop at it, learn from it what is not so, or be measured wrongly:
rows that cannot be used, fewer than two classes, equal texts with different labels, labels that the training file never
has, texts of another file that are also in training, and a tokenizer that does not know the texts. The others are worth
knowing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any
from unicodedata import normalize

import numpy as np

from contract.errors import listing
from labelled.drift import Drift, drift
from labelled.fit import Fit
from labelled.labels import in_order
from labelled.oddities import COMPOSED, CONTROL, DECOMPOSED, MOJIBAKE, REPLACEMENT, oddities
from labelled.reader import EMPTY_TEXT, MISSING_TEXT
from labelled.scan import Numbers, Scan, same_text
from labelled.targets import NO_LABEL

SHOWN_PLACES = 5
ODD_NUMBER = 0x9E3779B97F4A7C1
"""Spreads small numbers over 64 bits; any large odd number would do."""
MOST_P, LEAST_V = 0.01, 0.05
"""A drift is a finding if chance hardly explains it and it is not tiny: many rows make any difference significant."""
UNUSABLE = {EMPTY_TEXT: "empty texts", MISSING_TEXT: "missing texts", NO_LABEL: "missing labels"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong with a file, or between two."""

    kind: str
    files: tuple[str, ...]
    count: int
    """Rows, texts or labels, as ``kind`` says."""
    spoils: bool
    message: str
    place: str = "line"
    places: tuple[int, ...] = ()
    """The first few lines or rows of the last of ``files``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Between:
    """How a file compares with an earlier one."""

    files: tuple[str, str]
    overlap_rows: int
    """Rows of the second whose text is in the first, case and white space aside."""
    other_label_rows: int
    """Those of them with a label that the text has nowhere in the first."""
    only_first: tuple[str, ...]
    """Labels that the second lacks."""
    only_second: tuple[str, ...]
    drift: Drift | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All that is known of some files; the first is taken for the training file."""

    scans: tuple[Scan, ...]
    between: tuple[Between, ...]
    findings: tuple[Finding, ...]
    max_length: int | None

    @property
    def spoils(self) -> bool:
        """Whether a training on these files would be spoilt."""
        return any(finding.spoils for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "spoils": self.spoils,
            "files": [
                {"file": name, "path": str(scan.path)} | _file(scan, self.max_length)
                for scan, name in zip(self.scans, _names(self.scans), strict=True)
            ],
            "between": [asdict(pair) for pair in self.between],
            "findings": [asdict(finding) for finding in self.findings],
        }


def examine(scans: Sequence[Scan], max_length: int | None = None) -> Report:
    """Draw the conclusions from scanned files.

    Args:
        scans: the training file and those that are to be used with it.
        max_length: most tokens of a text; None does not look at lengths.
    """
    composed = any(len(scan.odd.get(COMPOSED, ())) for scan in scans)
    names = _names(scans)
    findings = []
    for number, (scan, name) in enumerate(zip(scans, names, strict=True)):
        findings += _within(scan, name, max_length, composed=composed, training=number == 0)
    between = []
    for (first, left), (second, right) in combinations(enumerate(scans), 2):
        pair, found = _compare(left, right, (names[first], names[second]), trained_on=first == 0)
        between.append(pair)
        findings += found
    ordered = sorted(findings, key=lambda finding: not finding.spoils)
    return Report(scans=tuple(scans), between=tuple(between), findings=tuple(ordered), max_length=max_length)


def _names(scans: Sequence[Scan]) -> list[str]:
    """Short names of files: without their folders, unless two would have the same."""
    short = [scan.path.name for scan in scans]
    return short if len(set(short)) == len(short) else [str(scan.path) for scan in scans]


def lengths(numbers: Numbers) -> dict[str, float]:
    """Mean and percentiles of whole numbers; a percentile is the least value that so many rows do not exceed."""
    if not len(numbers):
        return {}
    median, p95, p99 = (int(value) for value in np.percentile(numbers, (50, 95, 99), method="inverted_cdf"))
    return {
        "mean": float(numbers.mean()),
        "least": int(numbers.min()),
        "median": median,
        "p95": p95,
        "p99": p99,
        "most": int(numbers.max()),
    }


def fit_of_scan(scan: Scan) -> Fit:
    """How the tokenizer fits a file."""
    return Fit(
        tokens=int(scan.tokens.sum()) - scan.rows * scan.specials,
        unknown=int(scan.unknown.sum()),
        characters=int(scan.characters.sum()) + scan.rows,
    )


def _file(scan: Scan, max_length: int | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "rows": scan.rows,
        "unusable_rows": sum(map(len, scan.bad.values())),
        "columns": list(scan.columns),
        "characters": lengths(scan.characters),
        "words": lengths(scan.words),
    }
    counts = scan.label_rows
    if counts:
        described["labels"] = {label: counts.get(label, 0) for label in scan.classes or in_order(counts)}
    if len(scan.values):
        described["values"] = {
            "mean": float(scan.values.mean()),
            "least": float(scan.values.min()),
            "median": float(np.median(scan.values)),
            "most": float(scan.values.max()),
        }
    if len(scan.tokens):
        described["tokens"] = lengths(scan.tokens) | {"unknown_share": fit_of_scan(scan).unknown_share}
        if max_length:
            over = scan.tokens[scan.tokens > max_length]
            cut = int(over.sum()) - max_length * len(over)
            described["tokens"] |= {"max_length": max_length, "cut_rows": len(over), "cut_tokens": cut}
    return described


def _within(scan: Scan, name: str, max_length: int | None, *, composed: bool, training: bool) -> list[Finding]:
    found = []

    def note(kind: str, places: Numbers, message: str, *, count: int | None = None, spoils: bool = False) -> None:
        if len(places) or count:
            first = tuple(int(place) for place in np.sort(places)[:SHOWN_PLACES])
            found.append(
                Finding(
                    kind=kind,
                    files=(name,),
                    count=len(places) if count is None else count,
                    spoils=spoils,
                    message=message,
                    place=scan.place,
                    places=first,
                )
            )

    for reason, places in scan.bad.items():
        kind = UNUSABLE.get(reason)
        why = "" if kind else f"{reason}; "
        note(kind or "unusable rows", places, f"{why}mend them, or pass --skip-bad-rows to the training", spoils=True)
    classes = scan.label_rows
    if not len(scan.values) and len(classes) < 2 and scan.rows:
        note("one class", scan.places[:1], "a training needs two", count=1, spoils=True)
    texts, rows = _conflicts(scan.alike, scan.targets)
    message = "texts that are equal, case and white space aside, and labelled differently: no model learns both"
    note("conflicting labels", scan.places[rows], message, count=texts, spoils=not len(scan.values))
    exact = _repeats(scan.exact, scan.targets)
    note(
        "exact duplicates",
        scan.places[exact],
        "they equal an earlier row, text and label; --drop-repeats leaves them out",
    )
    alike = np.setdiff1d(_repeats(scan.alike, scan.targets), exact)
    note("near duplicates", scan.places[alike], "they equal an earlier row when case and white space do not count")
    rare = [label for label, count in classes.items() if count == 1] if training else []
    if rare:
        message = f"{listing(rare, 5)}; such a row is in training or in dev, never in both"
        note("labels of one row", _firsts(scan, rare), message, count=len(rare))
    if unused := [name for name in scan.classes if name not in classes]:
        note("labels without a row", scan.places[:0], f"{listing(unused, 5)}; the file names them", count=len(unused))
    if odd := [label for label in classes if set(oddities(label)) - {COMPOSED, DECOMPOSED}]:
        message = f"{listing(odd, 5)}; lost, wrongly decoded or control characters"
        note("odd labels", _firsts(scan, odd), message, count=len(odd))
    if twins := _twins(classes):
        message = f"{listing(twins, 6)}; classes that differ by case, white space or normal form only"
        note("labels that look alike", _firsts(scan, twins), message, count=len(twins))
    for oddity, message in (
        (REPLACEMENT, "U+FFFD or what became of it: characters were lost before the file was written"),
        (MOJIBAKE, "text that was decoded with a wrong encoding, such as 'Ã©' for 'é'; make the file anew"),
        (CONTROL, "other than tabs and line ends"),
    ):
        note(oddity, scan.odd.get(oddity, scan.places[:0]), message)
    if composed:
        message = "not in normal form C where other rows are: letters and accents apart look equal and are not"
        note("mixed normal forms", scan.odd.get(DECOMPOSED, scan.places[:0]), message)
    if len(scan.tokens):
        if max_length:
            over = scan.tokens > max_length
            cut = int(scan.tokens[over].sum()) - max_length * int(over.sum())
            message = f"they lose {cut:,} tokens at {max_length}, {cut / scan.tokens.sum():.1%} of all"
            note("truncated", scan.places[over], message)
            texts, rows = _conflicts(scan.read[over], scan.targets[over])
            message = (
                "their ends differ, what is read of them is equal, their labels differ; a longer --max-length may help"
            )
            note("equal when truncated", scan.places[over][rows], message, count=texts)
        if warning := fit_of_scan(scan).warning:
            note("unfit tokenizer", scan.places[scan.unknown > 0], warning, count=scan.rows, spoils=True)
    return found


def _firsts(scan: Scan, labels: Sequence[str]) -> Numbers:
    """Where some labels occur first."""
    return np.concatenate([scan.places_of(label)[:1] for label in labels[:SHOWN_PLACES]])


def _twins(labels: Iterable[str]) -> list[str]:
    """Labels that are equal to another one when case, white space and normal form do not count."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(same_text(normalize("NFKC", label)), []).append(label)
    return [label for group in groups.values() if len(group) > 1 for label in group]


def _compare(left: Scan, right: Scan, names: tuple[str, str], *, trained_on: bool) -> tuple[Between, list[Finding]]:
    seen = np.isin(right.alike, left.alike)
    other = seen & ~_in_pairs(right, left)
    counts = left.label_rows, right.label_rows
    pair = Between(
        files=names,
        overlap_rows=int(seen.sum()),
        other_label_rows=int(other.sum()),
        only_first=tuple(in_order(counts[0].keys() - counts[1].keys())),
        only_second=tuple(in_order(counts[1].keys() - counts[0].keys())),
        drift=drift(*counts),
    )
    found = []

    def note(kind: str, count: int, message: str, places: Numbers, *, spoils: bool = False) -> None:
        first = tuple(int(place) for place in np.sort(places)[:SHOWN_PLACES])
        found.append(
            Finding(
                kind=kind, files=names, count=count, spoils=spoils, message=message, place=right.place, places=first
            )
        )

    nowhere = right.places[:0]
    if pair.overlap_rows:
        message = f"texts that are also in {names[0]}, {pair.other_label_rows} of them with another label"
        note("overlap", pair.overlap_rows, message, right.places[seen], spoils=True)
    if pair.only_second:
        message = f"{listing(pair.only_second, 5)}; never in {names[0]}"
        places = np.concatenate([right.places_of(label) for label in pair.only_second[:SHOWN_PLACES]])
        note("unseen labels", len(pair.only_second), message, places, spoils=trained_on)
    if pair.only_first:
        message = f"{listing(pair.only_first, 5)}; only in {names[0]}"
        note("absent labels", len(pair.only_first), message, nowhere)
    if pair.drift and pair.drift.p < MOST_P and pair.drift.cramers_v >= LEAST_V:
        message = (
            f"not as frequent as in {names[0]}: p {pair.drift.p:.2g}{' (rough)' if pair.drift.rough else ''}, "
            f"Cramér's V {pair.drift.cramers_v:.2f}"
        )
        note("label drift", len(counts[0].keys() | counts[1].keys()), message, nowhere)
    return pair, found


def _repeats(*keys: Numbers) -> Numbers:
    """Positions of the entries that equal an earlier one in every key."""
    order = np.lexsort(keys)  # stable: equal entries stay in their order
    same = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    return np.sort(order[1:][same])


def _conflicts(keys: Numbers, targets: Numbers) -> tuple[int, Numbers]:
    """Number of texts with more than one target, and the positions of all their rows."""
    texts, number = np.unique(keys, return_inverse=True)
    one = np.zeros(len(texts), dtype=targets.dtype)
    one[number] = targets  # any one of the targets of a text
    disputed = np.zeros(len(texts), dtype=bool)
    disputed[number[one[number] != targets]] = True
    return int(disputed.sum()), np.flatnonzero(disputed[number])


def _in_pairs(right: Scan, left: Scan) -> Numbers:
    """Which rows of ``right`` are in ``left`` with text and labels."""
    numbers = {kind: number for number, kind in enumerate(left.kinds)}
    translated = np.array([numbers.get(kind, -1) for kind in right.kinds], dtype=np.int64)[right.targets]
    return np.isin(_mixed(right.alike, translated), _mixed(left.alike, left.targets))


def _mixed(texts: Numbers, targets: Numbers) -> Numbers:
    """One hash for two numbers; it wraps around at 64 bits."""
    mixed: Numbers = texts + (targets.astype(np.int64) + 1) * ODD_NUMBER
    return mixed
