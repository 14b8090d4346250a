"""Parquet files: columns and row groups. A bars file of ours is recognised by its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backtest.data.bars import Ints
from backtest.data.raw import Source
from backtest.errors import DataError

BATCH_ROWS = 1 << 18


def open_parquet(path: Path) -> Source:
    """Open a Parquet file.

    Raises:
        DataError: damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def damaged(error: Exception) -> DataError:
        return DataError(f"{path}: damaged Parquet file ({error}); copy the file again")

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise damaged(error) from None

    def blocks(places: Sequence[int]) -> Iterator[Mapping[int, Any]]:
        try:
            with pq.ParquetFile(path) as file:
                names = [schema.names[place] for place in places]
                for batch in file.iter_batches(BATCH_ROWS, columns=names):
                    yield {p: plain(batch.column(schema.names[p])) for p in places}
        except (OSError, pa.ArrowException) as error:
            raise damaged(error) from None

    def rows(position: Ints) -> Ints:
        return position + 1

    ours = b"skillwalk.bars" in (schema.metadata or {})
    return Source(schema.names, True, blocks, rows, [], closes=ours)


def plain(array: Any) -> Any:
    """Return dictionaries as their values and every kind of text as plain text."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array
