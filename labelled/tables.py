"""Data files to records: one mapping from column name to raw value for each row, with its line for messages.

Four formats, by extension:

- ``.csv``: quoted (RFC 4180), comma-separated; a quoted cell may contain line breaks.
- ``.tsv``, ``.tab``, ``.txt``: unquoted, tab-separated. A quote character is text, as in the GLUE files: a quoted
  dialect would glue lines together and lose rows without a word. ``quoted`` overrides this for both kinds.
- ``.jsonl``, ``.ndjson``, ``.json``: one JSON object per line. Numbers keep the characters they are written with.
- ``.parquet``: read in batches.

Text is decoded as UTF-8 whatever the locale says; one byte-order mark at the start of the file is markup, anywhere
else it is data. A byte that does not decode stops the reading: guessing Latin-1 would never fail and turn most of
the world's text into accented garbage. Unquoted lines end at LF or CRLF only, because U+2028 and U+0085 occur inside
texts. Blank lines are skipped; every other row is delivered, either with its values or with what is wrong with it.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from contract.errors import DataError, UsageError, listing

DELIMITED = {".csv": True, ".tsv": False, ".tab": False, ".txt": False}
"""Extension of a delimited file: whether its cells are quoted."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet",)
ENCODING_REMEDY = "if the file is not UTF-8, name its encoding, for example --encoding gb18030, cp1252 or utf-16"
PEEKED_RECORDS = 1000
"""JSON objects may lack keys: the columns are the keys of this many first records."""


class Number(str):
    """A number of a JSON file in the characters it is written with: 1 and "1" name the same class, 1.0 another."""

    __slots__ = ()


class Record(NamedTuple):
    """One row of a file: its values by column, or what is wrong with it. A tuple, because a file may have millions."""

    row: int
    """1 for the first row of data."""
    line: int | None
    """Line of the file on which the row begins, counted from 1; None for Parquet."""
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


def open_table(
    path: Path,
    *,
    encoding: str = "utf-8",
    header: bool = True,
    delimiter: str | None = None,
    quoted: bool | None = None,
) -> Table:
    """Open a data file by its extension.

    Args:
        path: the file.
        encoding: name of the text encoding; not used for Parquet.
        header: whether the first line of a delimited file names the columns; else they are called "0", "1", ...
        delimiter: the separator of a delimited file, if not the usual one.
        quoted: whether the cells of a delimited file are quoted, if not the usual way.

    Raises:
        DataError: the file is missing, empty, of an unknown kind, or cannot be decoded (also while reading).
        UsageError: the encoding or the delimiter does not exist.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; give one data file.")
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    suffix = path.suffix.lower()
    if suffix in PARQUET:
        return _parquet(path)
    lines = _without_blank_start(path, encoding)
    if suffix in JSON_LINES:
        return _json_lines(path, lines("\n"))
    if suffix not in DELIMITED:
        known = ", ".join((*DELIMITED, *JSON_LINES, *PARQUET))
        raise DataError(f"{path} has the extension {suffix!r}; one of {known} was expected.")
    quoted = DELIMITED[suffix] if quoted is None else quoted
    delimiter = delimiter or ("," if suffix == ".csv" else "\t")
    delimiter = {r"\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise UsageError(f"--delimiter is {delimiter!r}; one character was expected, such as ',' ';' or '\\t'.")
    rows = _quoted(path, lines(""), delimiter) if quoted else _unquoted(lines("\n"), delimiter)
    return _delimited(path, rows, header, delimiter)


def _without_blank_start(path: Path, encoding: str) -> Callable[[str], Iterator[str]]:
    """A function from newline mode to the decoded lines of a file without its byte-order mark."""
    try:
        path.open(encoding=encoding).close()
    except LookupError:
        raise UsageError(f"--encoding is {encoding!r}, which is not a text encoding that Python knows.") from None

    def lines(newline: str) -> Iterator[str]:
        with path.open(encoding=encoding, newline=newline) as handle:
            try:
                first = next(handle, "").removeprefix("\ufeff")
                yield from chain([first] if first else [], handle)
            except UnicodeError:
                raise _undecodable(path, encoding) from None

    return lines


def _undecodable(path: Path, encoding: str) -> DataError:
    """Where the bad byte is. Reads the file again, whole: only this path needs the offset."""
    data = path.read_bytes()
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


def _unquoted(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """(line, cells) of each line that is not blank."""
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip() or delimiter in line:
            yield number, line.split(delimiter)


def _quoted(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
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


def _delimited(path: Path, rows: Iterator[tuple[int, list[str] | str]], header: bool, delimiter: str) -> Table:
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


def _json_lines(path: Path, lines: Iterator[str]) -> Table:
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


def _parquet(path: Path) -> Table:
    # pyarrow takes a third of a second to import, and most data is text
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}).") from None

    def records() -> Iterator[Record]:
        row = 0
        try:
            for batch in file.iter_batches():
                for values in batch.to_pylist():
                    row += 1
                    yield Record(row, None, values)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{path} cannot be read as Parquet after row {row} ({reason}).") from None

    return Table(tuple(file.schema_arrow.names), records())


def kind_name(value: Any) -> str:
    """What a raw value is, in the words of a JSON file."""
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), ((Number, int, float), "number"), (str, "string"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def pick(table: Table, path: Path, wanted: str | None, usual: tuple[str, ...], purpose: str, flag: str) -> str:
    """The column for one purpose: the one that is named, or the first usual name that the file has.

    Names are compared exactly first, then without regard to case and surrounding space.

    Raises:
        DataError: there is no such column, with the columns that exist, or there are two.
    """
    by_folded = {column.strip().casefold(): column for column in reversed(table.columns)}
    for name in (wanted,) if wanted is not None else usual:
        column = name if name in table.columns else by_folded.get(name.strip().casefold())
        if column is not None:
            if table.columns.count(column) > 1:
                raise DataError(f"{path} has {table.columns.count(column)} columns called {column!r}; rename one.")
            return column
    have = listing(table.columns)
    hint = f"; {table.hint}" if table.hint else ""
    if wanted is not None:
        raise DataError(f"{path} has no column {wanted!r}; its columns are {have}{hint}.")
    raise DataError(
        f"{path} has no {purpose} column under a usual name ({', '.join(usual)}); its columns are {have}: "
        f"name one with {flag}{hint}."
    )
