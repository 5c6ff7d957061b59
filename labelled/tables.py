"""Data files to records: one mapping from column name to raw value for each row, with its line for messages.

The format is told by the extension:

- ``.csv``: quoted (RFC 4180), comma-separated; a quoted cell may contain line breaks.
- ``.tsv``, ``.tab``, ``.txt``: unquoted, tab-separated. A quote character is text, as in the GLUE files: a quoted
  dialect would glue lines together and lose rows without a word. ``quoted`` overrides this for both kinds.
- ``.jsonl``, ``.ndjson``, ``.json``: one JSON object per line. Numbers keep the characters they are written with.
- any of these with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` behind it.
- ``.parquet``, ``.arrow``, ``.feather``, ``.ipc``: read in batches.
- a folder that Hugging Face's ``datasets`` wrote with ``save_to_disk``.
"""

from __future__ import annotations

from pathlib import Path

from contract.errors import DataError, UsageError, listing
from labelled.records import Table
from labelled.text_files import COMPRESSED, delimited, json_lines, lines_of, quoted, unquoted

DELIMITED = {".csv": True, ".tsv": False, ".tab": False, ".txt": False}
"""Extension of a delimited file: whether its cells are quoted."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet",)
ARROW = (".arrow", ".feather", ".ipc")


def open_table(
    path: Path,
    *,
    encoding: str = "utf-8",
    header: bool = True,
    delimiter: str | None = None,
    quotes: bool | None = None,
) -> Table:
    """Open a data file by its extension, or a dataset folder.

    Args:
        path: the file or folder.
        encoding: name of the text encoding of text files.
        header: whether the first line of a delimited file names the columns; else they are called "0", "1", ...
        delimiter: the separator of a delimited file, if not the usual one.
        quotes: whether the cells of a delimited file are quoted, if not the usual way.

    Raises:
        DataError: the file is missing, empty, of an unknown kind, or cannot be decoded (also while reading).
        UsageError: the encoding or the delimiter does not exist.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    packed = path.suffix.lower() in COMPRESSED
    suffix = Path(path.stem if packed else path.name).suffix.lower()
    if path.is_dir() or suffix in PARQUET + ARROW:
        # pyarrow takes a third of a second to import, and most data is text
        from labelled.arrow_files import arrow, dataset_folder, parquet

        if path.is_dir():
            return dataset_folder(path)
        if packed:
            raise DataError(
                f"{path}: {suffix} files are compressed inside, not outside; unpack it and give {path.stem}."
            )
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty.")
        return parquet(path) if suffix in PARQUET else arrow(path)
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    lines = lines_of(path, encoding)
    if suffix in JSON_LINES:
        return json_lines(path, lines("\n"))
    if suffix not in DELIMITED:
        known = ", ".join((*DELIMITED, *JSON_LINES, *PARQUET, *ARROW))
        raise DataError(
            f"{path} has the extension {suffix!r}; one of {known} was expected. Text files may have "
            f"{', '.join(COMPRESSED)} behind it."
        )
    quotes = DELIMITED[suffix] if quotes is None else quotes
    delimiter = delimiter or ("," if suffix == ".csv" else "\t")
    delimiter = {r"\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise UsageError(f"--delimiter is {delimiter!r}; one character was expected, such as ',' ';' or '\\t'.")
    rows = quoted(path, lines(""), delimiter) if quotes else unquoted(lines("\n"), delimiter)
    return delimited(path, rows, header, delimiter)


def files_of(path: Path) -> list[Path]:
    """The file itself, or the Arrow files of a dataset folder."""
    if path.is_dir():
        from labelled.arrow_files import data_files

        return data_files(path)
    return [path]


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
