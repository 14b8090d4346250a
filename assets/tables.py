"""Tables, column schemas and files as metadata of the UI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

MOST_ROWS = 200  # of a table in the UI
Row = Mapping[str, Any]
# What every asset returns; Dagster does not recognise the class with a parameter.
if TYPE_CHECKING:
    Made = dg.MaterializeResult[Any]
else:
    Made = dg.MaterializeResult


def table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> dg.TableMetadataValue:
    """Return rows as a table; numbers that are not finite are shown as nothing.

    Args:
        rows: alike; what lies beyond `MOST_ROWS` is not shown.
        columns: which, in this order; None: those of the first row.
    """
    names = list(columns if columns is not None else rows[0] if rows else ())
    records = [
        dg.TableRecord({name: cell(row.get(name)) for name in names}) for row in rows[:MOST_ROWS]
    ]
    kinds = {n: kind(next((r[n] for r in rows if r.get(n) is not None), "")) for n in names}
    return dg.MetadataValue.table(
        records, dg.TableSchema([dg.TableColumn(name, kinds[name]) for name in names])
    )


def cell(value: Any) -> str | int | float | bool | None:
    """Return a value as a table of the UI holds it; floats to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else str(value)


def kind(value: Any) -> str:
    """Return the UI's name of a value's type."""
    names = {bool: "bool", int: "int", float: "float"}
    return names.get(type(value), "string")


def parquet(path: Path) -> dict[str, Any]:
    """Return rows, columns and size of a Parquet file as metadata."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    columns = [dg.TableColumn(field.name, str(field.type)) for field in file.schema_arrow]
    return {
        "dagster/row_count": file.metadata.num_rows,
        "dagster/column_schema": dg.TableSchema(columns),
        "path": dg.MetadataValue.path(path),
        "bytes": path.stat().st_size,
    }


def figures(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the numbers that are defined: the UI plots each by partition."""
    return {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }
