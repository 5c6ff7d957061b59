"""Text files of rows: delimited files and JSON lines, plain or compressed.

Text is decoded as UTF-8 whatever the locale says; one byte-order mark at the start of the file is markup, anywhere
else it is data. A byte that does not decode stops the reading: guessing Latin-1 would never fail and turn most of
the world's text into accented garbage. Unquoted lines end at LF or CRLF only, because U+2028 and U+0085 occur inside
texts. Blank lines are skipped; every other row is delivered, either with its values or with what is wrong with it.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, cast

from contract.errors import DataError, UsageError
from labelled.records import Number, Record, Table, kind_name

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
ENCODING_REMEDY = "if the file is not UTF-8, name its encoding, for example --encoding gb18030, cp1252 or utf-16"
PEEKED_RECORDS = 1000
"""JSON objects may lack keys: the columns are the keys of this many first records."""


def open_bytes(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked if its name says that it is compressed."""
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(path))
        case ".bz2":
            return bz2.open(path)
        case ".xz":
            return cast(IO[bytes], lzma.open(path))
        case ".zst":
            # pyarrow takes a third of a second to import, and most data is not compressed so
            import pyarrow as pa

            return io.BufferedReader(cast(io.RawIOBase, pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")))
    return path.open("rb")


def lines_of(path: Path, encoding: str) -> Callable[[str], Iterator[str]]:
    """A function from newline mode to the decoded lines of a file without its byte-order mark.

    Raises:
        UsageError: there is no such encoding.
        DataError: while reading: the bytes do not decode, or do not unpack.
    """
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    except LookupError:
        raise UsageError(f"--encoding is {encoding!r}, which is not a text encoding that Python knows.") from None

    def lines(newline: str) -> Iterator[str]:
        try:
            with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding=encoding, newline=newline) as handle:
                first = next(handle, "").removeprefix("\ufeff")
                yield from chain([first] if first else [], handle)
        except UnicodeError:
            raise _undecodable(path, encoding) from None
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise _unreadable(path, error) from None

    return lines


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"{path} may not be read by this user; allow it (chmod u+r), or copy the file.")
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if path.suffix.lower() in COMPRESSED:
        return DataError(
            f"{path} cannot be unpacked ({reason}): it is cut short, damaged or not what {path.suffix} says; copy it "
            "again or unpack it by hand."
        )
    return DataError(f"{path} cannot be read ({reason}).")


def _undecodable(path: Path, encoding: str) -> DataError:
    """Where the bad byte is. Reads the file again, whole: only this path needs the offset."""
    with open_bytes(path) as stream:
        data = stream.read()
    remedy = ENCODING_REMEDY
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        remedy = "it begins like UTF-16: pass --encoding utf-16"
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, errors="replace").count("\n") + 1
        byte = f"the byte 0x{data[error.start]:02x} at offset {error.start}"
        return DataError(f"{path}, line {line}: {byte} is not {encoding}; {remedy}.")
    except UnicodeError as error:
        return DataError(f"{path} is not {encoding} ({error}); {remedy}.")
    return DataError(f"{path} is not {encoding}; {remedy}.")


def unquoted(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """(line, cells) of each line that is not blank."""
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip() or delimiter in line:
            yield number, line.split(delimiter)


def quoted(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """(line, cells or what is wrong) of each record that is not blank."""
    csv.field_size_limit(sys.maxsize)  # the default refuses cells over 131,072 characters, which contracts exceed
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise DataError(
                    f"{path}, line {start}: a quote opens here that never closes; close it, or pass --unquoted if "
                    "quotes are ordinary text in this file."
                ) from None
            yield start, f"broken quoting ({error})"
            continue
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            yield start, cells


def delimited(path: Path, rows: Iterator[tuple[int, list[str] | str]], header: bool, delimiter: str) -> Table:
    """A table from the cells of each line."""
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path} is empty: it has only blank lines.")
    line, cells = first
    if isinstance(cells, str):
        raise DataError(f"{path}, line {line}: {cells} in the first line.")
    if header:
        columns = tuple(cell.strip() for cell in cells)
        hint = "if the first line is data, pass --no-header and columns by position, counted from 0"
        other = next((mark for mark in "\t;,|" if mark != delimiter and mark in cells[0]), None)
        if len(cells) == 1 and other:
            hint = f"if {other!r} separates the columns, pass --delimiter {other!r}"
    else:
        columns = tuple(str(position) for position in range(len(cells)))
        hint = "without a header, columns are positions counted from 0"
        rows = chain([first], rows)

    def records() -> Iterator[Record]:
        width = len(columns)
        for row, (line, cells) in enumerate(rows, start=1):
            if isinstance(cells, str):
                yield Record(row, line, {}, cells)
            elif len(cells) != width:
                count = f"{len(cells)} column{'s' * (len(cells) != 1)}"
                yield Record(row, line, {}, f"{count} where {width} were expected")
            else:
                yield Record(row, line, dict(zip(columns, cells, strict=True)))

    return Table(columns, records(), hint)


def json_lines(path: Path, lines: Iterator[str]) -> Table:
    """A table from one JSON object per line."""

    def records() -> Iterator[Record]:
        row = 0
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row += 1
            if row == 1 and line.lstrip().startswith("["):
                raise DataError(
                    f"{path} holds a JSON array; one object per line was expected (jq -c '.[]' makes them)."
                )
            try:
                value = json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number)
            except (json.JSONDecodeError, RecursionError) as error:
                yield Record(row, number, {}, f"not valid JSON ({error})")
                continue
            if isinstance(value, dict):
                yield Record(row, number, value)
            else:
                yield Record(row, number, {}, f"a JSON {kind_name(value)} where an object was expected")

    rest = records()
    peeked = list(islice(rest, PEEKED_RECORDS))
    if not peeked:
        raise DataError(f"{path} is empty: it has only blank lines.")
    columns = tuple(dict.fromkeys(key for record in peeked for key in record.values))
    if not columns:
        raise DataError(f"{path}, {peeked[0].place}: {peeked[0].problem or 'an object without keys'}.")
    return Table(columns, chain(peeked, rest))
