"""Texts in Parquet files, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from contract.errors import DataError, listing

if TYPE_CHECKING:
    from pretrain.sources import Reading

ROWS = 256
"""Rows that are in memory at once."""


def row_group_sizes(path: Path, reading: Reading) -> list[int]:
    """Bytes of each row group's text column (compressed); none if the file is to be skipped.

    Raises:
        DataError: the file is damaged, or has no text column of the given name.
    """
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            column = names.index(reading.text_field) if reading.text_field in names else -1
            kind = file.schema_arrow.types[column] if column >= 0 else None
            if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                what = "no column" if kind is None else f"a column of type {kind}, not string, named"
                raise DataError(
                    f"{path} has {what} {reading.text_field!r}; its columns are {listing(names)}: pass --text-field."
                )
            groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
            leaf = _leaf(file, reading.text_field)
            return [group.column(leaf).total_compressed_size for group in groups]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}).") from None


def _leaf(file: pq.ParquetFile, name: str) -> int:
    """Number of a flat column among the leaves; nested columns before it have several."""
    paths = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
    return int(paths.index(name))


def read_texts(path: Path, row_group: int, field: str) -> Iterator[str | None]:
    """The texts of one row group, in order; None for a null.

    Raises:
        DataError: the row group cannot be read.
    """
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            batches = file.iter_batches(ROWS, row_groups=[row_group], columns=[field], use_threads=False)
            for batch in batches:
                yield from batch.column(0).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"row group {row_group} of {path} cannot be read ({error}).") from None
