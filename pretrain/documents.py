"""The documents of one unit of work, streamed: memory depends on the longest document, never on the file.

Each document belongs to one unit however a file is cut: a line to the unit in which it begins, a document between
blank lines to the unit in which the last blank line before it begins (the file's first one, to the first unit).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import IO, cast

from contract.errors import DataError
from pretrain.sources import Reading, Unit

MAX_DOCUMENT_BYTES = 1 << 22
"""A longer document is cut at the end of a line (or word) and its parts count as documents."""
MAX_RECORD_BYTES = 1 << 26
"""Longest line of a JSON-lines file."""
_BOM = b"\xef\xbb\xbf"


def read_documents(unit: Unit, reading: Reading, counts: Counter[str]) -> Iterator[str]:
    """Documents of a unit, in order, before any cleaning.

    Raises:
        DataError: bytes that are not UTF-8, or a record without a text, when such input is to be refused; a damaged
            file. The message has the file, the line and the byte offset.
    """
    try:
        for text in _texts(unit, reading, counts):
            for part in _within_limit(text, counts):
                counts["documents_read"] += 1
                yield part
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{unit.path} is a damaged gzip file ({error}); copy it again.") from None
    except OSError as error:
        raise DataError(f"{unit.path} cannot be read ({error.strerror}).") from None


def _texts(unit: Unit, reading: Reading, counts: Counter[str]) -> Iterator[str]:
    if unit.kind == "parquet":
        from pretrain.parquet import read_texts

        yield from (text or "" for text in read_texts(unit.path, unit.start, reading.text_field))
        return
    with _open(unit) as handle:
        if unit.kind == "txt":
            cut = _lines if reading.document_per_line else _between_blank_lines
            for offset, content in cut(handle, unit, counts):
                text = _decode(content, offset, unit, reading, counts)
                if text is not None:
                    yield text
        else:
            for offset, content in _lines(handle, unit, counts):
                record = _decode(content, offset, unit, reading, counts)
                text = None if record is None else _field(record, offset, unit, reading, counts)
                if text is not None:
                    yield text


def _open(unit: Unit) -> IO[bytes]:
    if unit.kind == "jsonl.gz":
        return cast(IO[bytes], gzip.open(unit.path, "rb"))
    return unit.path.open("rb")


def _decode(content: bytes, offset: int, unit: Unit, reading: Reading, counts: Counter[str]) -> str | None:
    """The text of a document's bytes; None if they are bad and bad ones are skipped."""
    try:
        text = content.decode()
        return text.removeprefix("\ufeff") if offset == 0 else text
    except UnicodeDecodeError as error:
        if reading.bad_files == "refuse":
            at = offset + error.start
            raise DataError(
                f"{unit.path}, line {_line_number(unit, at)}, byte {at}: {content[error.start]:#04x} is not UTF-8; "
                "convert the file (iconv -f ... -t utf-8) or pass --bad-files skip to leave such documents out."
            ) from None
    counts["documents_read"] += 1
    counts["undecodable_documents"] += 1
    return None


def _field(record: str, offset: int, unit: Unit, reading: Reading, counts: Counter[str]) -> str | None:
    """The text inside a JSON record; None if there is none and such records are skipped."""
    try:
        value = json.loads(record)
        problem = f"has no text in the field {reading.text_field!r} (--text-field names another)"
    except (ValueError, RecursionError):
        value, problem = None, "is not valid JSON"
    text = value.get(reading.text_field) if isinstance(value, dict) else None
    if isinstance(text, str):
        return text
    if reading.bad_files == "refuse":
        raise DataError(
            f"{unit.path}, line {_line_number(unit, offset)}: the record {problem}; "
            "mend it or pass --bad-files skip to leave such records out."
        )
    counts["documents_read"] += 1
    counts["malformed_records"] += 1
    return None


def _line_number(unit: Unit, offset: int) -> int:
    """1-based line of a byte offset. Reads the file up to there, but only for an error message."""
    number = 1
    with _open(unit) as handle:
        while offset > 0 and (chunk := handle.read(min(offset, 1 << 20))):
            number += chunk.count(b"\n")
            offset -= len(chunk)
    return number


def _pieces(handle: IO[bytes], unit: Unit, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """(offset, line, whether it goes on) from the first line that begins in the unit to the end of the file.

    A line longer than ``limit`` comes in parts.
    """
    position = max(unit.start - 1, 0)
    handle.seek(position)
    if unit.start > 0:
        while (tail := handle.readline(limit)) and not tail.endswith(b"\n"):
            position += len(tail)
        position += len(tail)
    rest = b""
    while line := rest + handle.readline(limit - len(rest)):
        rest, cut = b"", False
        if len(line) >= limit and not line.endswith(b"\n"):
            (line, rest), cut = _cut_bytes(line), True
        yield position, line, cut
        position += len(line)


def _is_blank(offset: int, line: bytes) -> bool:
    """Whether a line has nothing but white space and, at the beginning of a file, a byte order mark."""
    return not (line.removeprefix(_BOM) if offset == 0 else line).strip()


def _cut_bytes(line: bytes) -> tuple[bytes, bytes]:
    """Cut near the end: after a space if one is near, else between two characters of UTF-8."""
    space = line.rfind(b" ", len(line) - 1024)
    if space >= 0:
        return line[: space + 1], line[space + 1 :]
    cut = len(line)
    while cut > len(line) - 4 and line[cut - 1] & 0xC0 == 0x80:  # continuation bytes
        cut -= 1
    cut -= line[cut - 1] >= 0xC0  # the lead byte goes with them
    return line[:cut], line[cut:]


def _lines(handle: IO[bytes], unit: Unit, counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of every line that begins in the unit and is not blank."""
    limit = MAX_DOCUMENT_BYTES if unit.kind == "txt" else MAX_RECORD_BYTES
    goes_on = False
    for offset, line, cut in _pieces(handle, unit, limit):
        if not goes_on and offset >= unit.end and unit.kind != "jsonl.gz":
            return
        goes_on = cut
        if cut:
            if unit.kind != "txt":
                raise DataError(
                    f"{unit.path}, byte {offset}: a line is longer than {limit >> 20} MiB; is this a JSON-lines file?"
                )
            counts["long_documents_cut"] += 1
        if not _is_blank(offset, line):
            yield offset, line


def _between_blank_lines(handle: IO[bytes], unit: Unit, counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """(offset, lines) of every document that follows a blank line of the unit."""
    lines: list[bytes] = []
    begin = size = 0
    ours = unit.start == 0
    goes_on = False
    for offset, line, cut in _pieces(handle, unit, MAX_DOCUMENT_BYTES):
        whole, goes_on = not goes_on, cut
        if whole and _is_blank(offset, line):
            if lines:
                yield begin, b"".join(lines)
                lines = []
            if offset >= unit.end:
                return
            ours = True
        elif ours:
            if lines and size + len(line) > MAX_DOCUMENT_BYTES:
                counts["long_documents_cut"] += 1
                yield begin, b"".join(lines)
                lines = []
            if not lines:
                begin, size = offset, 0
            lines.append(line)
            size += len(line)
        elif offset >= unit.end:
            return
    if lines:
        yield begin, b"".join(lines)


def _within_limit(text: str, counts: Counter[str]) -> Iterator[str]:
    """The text, or its parts if a record holds a longer one than a document may be."""
    while len(text) > MAX_DOCUMENT_BYTES:
        cut = text.rfind("\n", 1, MAX_DOCUMENT_BYTES)
        cut = cut if cut > 0 else text.rfind(" ", 1, MAX_DOCUMENT_BYTES)
        cut = cut if cut > 0 else MAX_DOCUMENT_BYTES
        counts["long_documents_cut"] += 1
        yield text[:cut]
        text = text[cut:]
    yield text
