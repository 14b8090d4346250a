"""The store's schema as `schema.sql` declares it, and rows brought into exactly that form."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from backtest.errors import StoreError
from backtest.identity import canonical

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FOLDER = Path(__file__).resolve().parent
# Rows of one table: an Arrow table, arrays by column, or one mapping per row.
Rows: TypeAlias = "pa.Table | Mapping[str, Any] | Sequence[Mapping[str, Any]]"


@dataclass(frozen=True)
class Declared:
    """One table of the schema."""

    schema: pa.Schema  # Arrow types in the order of declaration; nullable as declared
    key: tuple[str, ...]


def create_tables(connection: duckdb.DuckDBPyConnection, *, comments: bool = True) -> None:
    """Create every table of `schema.sql`, empty; comments take most of the time."""
    statements = (FOLDER / "schema.sql").read_text(encoding="utf-8").split(";\n")
    wanted = [s for s in statements if comments or not s.lstrip().startswith("COMMENT")]
    # one transaction: in a file each statement alone would be flushed to the disk
    connection.execute("BEGIN;" + ";".join(wanted) + ";COMMIT")


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create every view of `views.sql` over tables that exist."""
    connection.execute((FOLDER / "views.sql").read_text(encoding="utf-8"))


@functools.cache
def declared() -> dict[str, Declared]:
    """Return every table of the schema by name, in the order of declaration."""
    import duckdb
    import pyarrow as pa

    arrow = {
        "VARCHAR": pa.string(),
        "JSON": pa.string(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),  # UTC
    }
    with duckdb.connect(":memory:") as connection:
        create_tables(connection, comments=False)
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY table_oid, column_index"
        ).fetchall()
        keys = dict(
            connection.execute(
                "SELECT table_name, constraint_column_names FROM duckdb_constraints() "
                "WHERE constraint_type = 'PRIMARY KEY'"
            ).fetchall()
        )
    fields: dict[str, list[pa.Field]] = {}
    for table, column, kind, nullable in columns:
        fields.setdefault(table, []).append(pa.field(column, arrow[kind], nullable))
    return {name: Declared(pa.schema(f), tuple(keys[name])) for name, f in fields.items()}


def conform(name: str, rows: Rows, fixed: Mapping[str, Any]) -> pa.Table:
    """Return the rows with exactly the columns and types of a table, sorted by its key.

    NaN becomes NULL. Integers in a TIMESTAMP column are nanoseconds since the epoch, UTC (as in
    `Bars.time`); a zone is converted to UTC; digits below a microsecond are cut.

    Args:
        name: a table of the schema.
        rows: an Arrow table, arrays by column, or one mapping per row.
        fixed: columns of this table whose value is known; added where absent, else compared.

    Raises:
        StoreError: unknown table, missing or unknown column, wrong type, infinity, or a value
            that differs from `fixed`.
    """
    import pyarrow as pa

    if name not in declared():
        raise StoreError(f"{name}: no such table; schema.sql has {', '.join(declared())}")
    schema = declared()[name].schema
    columns = as_columns(name, rows)
    n_rows = len(next(iter(columns.values()))) if columns else 0
    for column, value in fixed.items():
        if column not in columns:
            columns[column] = pa.array([value] * n_rows, schema.field(column).type)
    if columns.keys() != set(schema.names):
        missing = [c for c in schema.names if c not in columns]
        unknown = [c for c in columns if c not in schema.names]
        raise StoreError(f"table {name}: missing columns {missing}, unknown columns {unknown}")
    cast = {f.name: as_type(f"{name}.{f.name}", columns[f.name], f.type) for f in schema}
    for column, value in fixed.items():
        others = {v for v in cast[column].unique().to_pylist() if v != value}
        if others:
            raise StoreError(
                f"table {name}: column {column} holds {sorted(map(str, others))[:3]}, but these "
                f"rows belong to {value!r}; write them with their own header"
            )
    try:
        table = pa.table(cast)
    except pa.ArrowInvalid as error:
        raise StoreError(f"table {name}: columns of unequal length: {error}") from None
    # field flags are dropped on purpose: a NULL in a NOT NULL column is reported by DuckDB
    return table.sort_by([(c, "ascending") for c in declared()[name].key])


def as_columns(name: str, rows: Rows) -> dict[str, Any]:
    """Return rows of any accepted form as arrays by column name."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return {c: rows.column(c).combine_chunks() for c in rows.column_names}
    if isinstance(rows, Mapping):
        return dict(rows)
    names = rows[0].keys() if rows else declared()[name].schema.names
    columns: dict[str, list[Any]] = {c: [] for c in names}
    for i, row in enumerate(rows):
        if row.keys() != columns.keys():
            odd = sorted(row.keys() ^ columns.keys())
            raise StoreError(f"table {name}, row {i}: columns {odd} are not in every row")
        for column, value in row.items():
            columns[column].append(value)
    return columns


def as_type(where: str, values: Any, target: pa.DataType) -> pa.Array:
    """Return an Arrow array of the target type; nothing but digits below 1 us is lost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        array = values if isinstance(values, pa.Array) else pa.array(plain(values))
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_floating(array.type):
            array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        given = array.type
        if pa.types.is_null(given):
            return array.cast(target)
        if text(given) != text(target) or pa.types.is_boolean(given) != pa.types.is_boolean(target):
            raise StoreError(f"{where}: {given} given, {target} expected")
        if pa.types.is_timestamp(target):
            if pa.types.is_integer(given):
                array = array.cast(pa.int64()).cast(pa.timestamp("ns"))
            elif pa.types.is_timestamp(given) and given.tz is not None:
                array = array.cast(pa.timestamp(given.unit))  # Arrow keeps the instant in UTC
            return array.cast(target, safe=False)
        if pa.types.is_date(target) and pa.types.is_integer(given):
            array = array.cast(pa.int32())  # days since the epoch
        array = array.cast(target)
        if pa.types.is_floating(target) and pc.any(pc.is_inf(array)).as_py():
            raise StoreError(f"{where}: infinite value; an undefined number is NULL (None or NaN)")
        return array
    except (pa.ArrowException, OverflowError) as error:
        raise StoreError(f"{where}: {target} expected: {error}") from None


def text(kind: pa.DataType) -> bool:
    """Whether a type holds text; Arrow would cast text to numbers and back unasked."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def plain(values: Any) -> Any:
    """Return values as Arrow infers them: NumPy scalars unboxed, JSON objects as text."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    unboxed = (v.item() if isinstance(v, np.generic) else v for v in values)
    return [canonical(v) if isinstance(v, dict | list) else v for v in unboxed]
