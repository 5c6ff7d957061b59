"""Which files make the corpus, and how they are cut into units of work.

A unit is a byte range of a text or JSON-lines file, a row group of a Parquet file, or a whole gzip file (it cannot be
entered in the middle). Units depend on the input alone, never on the number of workers, so neither does the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contract.errors import DataError, UsageError, listing

SUFFIXES = (".txt", ".jsonl", ".jsonl.gz", ".parquet")
HEAD_BYTES = 1 << 16
UNITS = 256
UNIT_BYTES = (1 << 20, 1 << 26)
"""Smallest and largest unit: about ``UNITS`` units between these limits."""

BadFiles = Literal["refuse", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How documents are found inside files."""

    document_per_line: bool = False
    """In .txt files: each line is a document, instead of a blank line between documents."""
    text_field: str = "text"
    """Name of the JSON field or Parquet column with the text."""
    bad_files: BadFiles = "refuse"
    """What happens with bytes that are not UTF-8 and records without a text: stop, or leave them out and count them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One piece of work. ``start`` and ``end`` are bytes, or the number of a row group and the next one."""

    path: Path
    kind: Literal["txt", "jsonl", "jsonl.gz", "parquet"]
    start: int
    end: int
    size_bytes: int
    """Bytes of input behind the unit, for progress."""
    modified_ns: int

    def key(self) -> str:
        """Identity of the unit's content as far as the file system tells it."""
        parts = (self.path, self.kind, self.start, self.end, self.size_bytes, self.modified_ns)
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """What was found under the given paths."""

    files: tuple[Path, ...]
    units: tuple[Unit, ...]
    ignored: tuple[str, ...]
    """Files in folders that have another ending."""
    skipped: tuple[str, ...]
    """Files that are binary or otherwise unreadable, left out on request."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all units."""
        return sum(unit.size_bytes for unit in self.units)


def find_corpus(paths: Iterable[Path], reading: Reading) -> Corpus:
    """List the input files in a fixed order, look at the beginning of each, and cut them into units.

    Raises:
        UsageError: a path does not exist or a file has an unknown ending.
        DataError: there is no input file, or one is binary or not UTF-8 (unless such files are to be skipped).
    """
    found: dict[Path, None] = {}
    ignored: list[str] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
            ignored += [str(p) for p in inside if _kind(p) is None]
            found |= dict.fromkeys(p.resolve() for p in inside if _kind(p) is not None)
        elif not path.exists():
            raise UsageError(f"{path} does not exist.")
        elif _kind(path) is None:
            raise UsageError(f"{path} has an ending that is not read; expected one of {', '.join(SUFFIXES)}.")
        else:
            found[path.resolve()] = None
    if not found:
        beside = f" (other files there: {listing(Path(name).name for name in ignored)})" if ignored else ""
        raise DataError(f"there is no file ending in {', '.join(SUFFIXES)} under the given paths{beside}.")
    skipped, files = [], []
    for path in found:
        problem = _problem(path)
        if problem is None:
            files.append(path)
        elif reading.bad_files == "skip":
            skipped.append(str(path))
        else:
            raise DataError(f"{path} {problem}; convert or remove it, or pass --bad-files skip to leave it out.")
    total = sum(path.stat().st_size for path in files)
    step = min(max(total // UNITS, UNIT_BYTES[0]), UNIT_BYTES[1])
    units = tuple(unit for path in files for unit in _units(path, step, reading))
    return Corpus(files=tuple(files), units=units, ignored=tuple(ignored), skipped=tuple(skipped))


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _kind(path: Path) -> Literal["txt", "jsonl", "jsonl.gz", "parquet"] | None:
    for kind in ("jsonl.gz", "txt", "jsonl", "parquet"):
        if path.name.lower().endswith(f".{kind}"):
            return kind
    return None


def _problem(path: Path) -> str | None:
    """Why a file cannot be a text of ours, as far as its first bytes tell."""
    try:
        with path.open("rb") as handle:
            head = handle.read(HEAD_BYTES)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    kind = _kind(path)
    if kind == "parquet":
        return None if head[:4] == b"PAR1" else "is not a Parquet file"
    if kind == "jsonl.gz":
        return None if head[:2] == b"\x1f\x8b" else "is not a gzip file"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is UTF-16, UTF-8 was expected"
    if b"\x00" in head:
        return "is binary (it holds zero bytes)"
    return None


def _units(path: Path, step: int, reading: Reading) -> Iterator[Unit]:
    kind = _kind(path)
    assert kind is not None
    stat = path.stat()

    def unit(start: int, end: int, size: int) -> Unit:
        return Unit(path=path, kind=kind, start=start, end=end, size_bytes=size, modified_ns=stat.st_mtime_ns)

    if kind == "parquet":
        from pretrain.parquet import row_group_sizes

        for number, size in enumerate(row_group_sizes(path, reading)):
            yield unit(number, number + 1, size)
    elif kind == "jsonl.gz":
        yield unit(0, stat.st_size, stat.st_size)
    else:
        for start in range(0, stat.st_size, step):
            end = min(start + step, stat.st_size)
            yield unit(start, end, end - start)
