"""Columnar files of rows: Parquet, Arrow IPC (Feather), and the folders of Hugging Face's ``datasets``.

A column of class numbers whose names the file itself says, as ``datasets`` notes them (``ClassLabel``), holds names
here; -1 is its mark for a missing label.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contract.errors import DataError, listing
from contract.storage import read_json
from labelled.records import Record, Table

SLICE_ROWS = 8192
"""Rows that are Python objects at a time, however large the batches of a file are."""
UNLABELLED = -1
MISTAKES = (pa.ArrowException, OSError, UnicodeDecodeError)


def parquet(path: Path) -> Table:
    """A Parquet file."""
    try:
        file = pq.ParquetFile(path)
    except MISTAKES as error:
        raise DataError(f"{path} cannot be read as Parquet ({_reason(error)}).") from None
    return _table(path, "Parquet", file.schema_arrow, file.iter_batches)


def arrow(path: Path) -> Table:
    """An Arrow IPC file or stream; Feather (version 2) is the same format."""
    schema, batches = _open_arrow(path)
    return _table(path, "Arrow", schema, batches)


def dataset_folder(path: Path) -> Table:
    """What ``Dataset.save_to_disk`` wrote: state.json, which lists Arrow files, and dataset_info.json.

    Raises:
        DataError: it is another folder, holds several splits, or is incomplete.
    """
    files = data_files(path)
    opened = [_open_arrow(file) for file in files]
    schema = opened[0][0]
    for file, (other, _) in zip(files, opened, strict=True):
        if other.names != schema.names:
            raise DataError(
                f"{file} has the columns {listing(other.names)} and {files[0].name} has {listing(schema.names)}; the "
                "folder mixes two data sets: save it again."
            )
    info = path / "dataset_info.json"
    features = read_json(info, DataError).get("features") if info.is_file() else None

    def batches() -> Iterator[Any]:
        for _, each in opened:
            yield from each()

    return _table(path, "Arrow", schema, batches, features)


def data_files(path: Path) -> list[Path]:
    """The Arrow files of a dataset folder, in order; see ``dataset_folder``."""
    if (path / "dataset_dict.json").is_file():
        splits = read_json(path / "dataset_dict.json", DataError).get("splits") or []
        which = f"{path / str(splits[0])}" if splits else "one"
        raise DataError(f"{path} holds the splits {listing(splits)}; give one of them, for example {which}.")
    if not (path / "state.json").is_file():
        raise DataError(
            f"{path} is a folder; give one data file, or a folder that save_to_disk of datasets wrote: it has a "
            "state.json."
        )
    state = read_json(path / "state.json", DataError)
    if state.get("_indices_data_files"):
        raise DataError(
            f"{path} selects rows by an index that lies beside them; call dataset.flatten_indices() and save it again."
        )
    names = [str(entry.get("filename")) for entry in state.get("_data_files") or [] if isinstance(entry, dict)]
    if not names:
        raise DataError(f"{path / 'state.json'} lists no data files; save the data set again.")
    for name in names:
        if Path(name).name != name or not (path / name).is_file():
            raise DataError(f"{path / 'state.json'} lists the file {name!r}, which is not in the folder; copy it too.")
    return [path / name for name in names]


def _open_arrow(path: Path) -> tuple[Any, Callable[[], Iterator[Any]]]:
    """(schema, function to the batches)."""
    try:
        with path.open("rb") as handle:
            magic = handle.read(6)
        if magic[:4] == b"FEA1":
            raise DataError(f"{path} is Feather version 1; write it again as version 2, the default since 2020.")
        source = pa.memory_map(str(path))
        reader = pa.ipc.open_file(source) if magic == b"ARROW1" else pa.ipc.open_stream(source)
    except MISTAKES as error:
        raise DataError(f"{path} cannot be read as Arrow ({_reason(error)}).") from None

    def batches() -> Iterator[Any]:
        if magic == b"ARROW1":
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from reader

    return reader.schema, batches


def _table(
    path: Path,
    kind: str,
    schema: Any,
    batches: Callable[[], Iterable[Any]],
    features: Mapping[str, Any] | None = None,
) -> Table:
    classes = _classes(features if features is not None else _features_of(schema))

    def records() -> Iterator[Record]:
        row = 0
        try:
            for batch in batches():
                for start in range(0, batch.num_rows, SLICE_ROWS):
                    for values in batch.slice(start, SLICE_ROWS).to_pylist():
                        row += 1
                        yield _named(row, values, classes) if classes else Record(row, None, values)
        except MISTAKES as error:
            raise DataError(f"{path} cannot be read as {kind} after row {row} ({_reason(error)}).") from None

    return Table(tuple(schema.names), records(), classes=classes)


def _named(row: int, values: dict[str, Any], classes: Mapping[str, tuple[str, ...]]) -> Record:
    """A row with the names of its class numbers."""
    for column, names in classes.items():
        given = values.get(column)
        numbers = given if isinstance(given, list) else [given]
        if any(isinstance(number, int) and not UNLABELLED <= number < len(names) for number in numbers):
            return Record(row, None, {}, f"the class number {given} in {column!r}, which has {len(names)} classes")
        named = [names[number] if isinstance(number, int) and number != UNLABELLED else None for number in numbers]
        values[column] = named if isinstance(given, list) else named[0]
    return Record(row, None, values)


def _features_of(schema: Any) -> Mapping[str, Any]:
    """What ``datasets`` notes in the schema of the files it writes; empty for those of others."""
    try:
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _classes(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Class names by column: of a ``ClassLabel``, or of a list of them in any of the ways it was written."""
    found = {}
    for column, feature in features.items():
        inner = feature[0] if isinstance(feature, list) and feature else feature
        if isinstance(inner, dict) and isinstance(inner.get("feature"), dict):
            inner = inner["feature"]
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            found[column] = tuple(map(str, inner["names"]))
    return found


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
