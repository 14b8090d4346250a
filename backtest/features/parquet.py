"""A FeatureTable as one Parquet file: bars, 42 features and the same 42 with the prefix slow_.

Key-value metadata says what it was made from: hash of the bars, ADX seed, version of the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backtest.errors import DataError
from backtest.features.names import FEATURES, MARKET_DIM, SLOW_FEATURES
from backtest.features.table import SERIES, FeatureTable, code_version, feature_hash
from backtest.lake import atomic_write

# Order of the columns in the file.
COLUMNS = ("time", "bar", *SERIES[1:], *FEATURES, *SLOW_FEATURES)


def write_features(table: FeatureTable, path: Path) -> None:
    """Write a table to a temporary name beside `path`, then rename it; parents are created."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values = np.ascontiguousarray(table[name])
        columns[name] = pa.array(values, pa.timestamp("ns", "UTC") if name == "time" else None)
    metadata = {
        "bars_hash": table.bars_hash,
        "adx_seed": table.adx_seed,
        "volume_known": str(table.volume_known),
        "first_bar": str(table.first_bar),
        "code_version": code_version(),
        "feature_hash": feature_hash(table),
    }
    with atomic_write(path) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), temporary)


def read_features(path: Path) -> FeatureTable:
    """Read a file of `write_features`.

    Raises:
        DataError: no such file, not Parquet, or without the columns or metadata of a feature file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    cure = "compute the features again"
    try:
        file = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise DataError(f"{path}: no such feature file; {cure}") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}); {cure}") from None
    missing = [name for name in COLUMNS if name not in file.column_names]
    if missing:
        raise DataError(f"{path}: column {missing[0]} is missing ({len(missing)} in all); {cure}")
    metadata = {key.decode(): value.decode() for key, value in (file.schema.metadata or {}).items()}
    absent = {"bars_hash", "adx_seed", "volume_known", "first_bar"} - metadata.keys()
    if absent:
        raise DataError(f"{path}: metadata {sorted(absent)} is missing; {cure}")
    first_bar = int(metadata["first_bar"])
    bars = file["bar"].to_numpy()
    if not np.array_equal(bars, np.arange(first_bar, first_bar + len(bars))):
        raise DataError(f"{path}: column bar does not count up from {first_bar}; {cure}")
    columns: dict[str, Any] = {
        name: np.asarray(file[name].cast("int64") if name == "time" else file[name])
        for name in SERIES
    }
    for field, names in (("market", FEATURES), ("slow", SLOW_FEATURES)):
        block = np.empty((len(bars), MARKET_DIM), order="F")
        for column, name in enumerate(names):
            block[:, column] = file[name].to_numpy()
        columns[field] = block
    return FeatureTable(
        first_bar=first_bar,
        volume_known=metadata["volume_known"] == "True",
        bars_hash=metadata["bars_hash"],
        adx_seed=metadata["adx_seed"],
        **columns,
    )
