"""Read-only SQL over the published store, or over the files of folds while a study still runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from backtest.errors import StoreError
from backtest.lake import Lake
from backtest.manifest import defect, scan
from backtest.schema import create_views
from backtest.sources import table_sources

if TYPE_CHECKING:
    import duckdb

ATTEMPTS = 20  # to open a file that is being replaced; one is enough almost always


class Answer(NamedTuple):
    """Columns in order, and one mapping per row with values that JSON can hold."""

    columns: list[str]
    rows: list[dict[str, Any]]


def query(lake: Lake, sql: str, *, live: bool = False) -> Answer:
    """Run one read-only statement.

    Times come back as ISO 8601 with a Z, NaN and infinities as None. Repeated column names get
    a number.

    Args:
        lake: the lake.
        sql: one SELECT, EXPLAIN, DESCRIBE, SHOW or PIVOT statement.
        live: read the folds' Parquet files as they are now, not the published store.

    Raises:
        StoreError: no store, several statements, one that is not read-only, or DuckDB's error.
    """
    import duckdb

    with connect_live(lake) if live else connect(lake) as connection:
        try:
            check_statement(connection, sql)
            cursor = connection.execute(sql)
            columns = distinct([c[0] for c in cursor.description])
            rows = cursor.fetchall()
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"SQL: {error}") from None
    return Answer(columns, [dict(zip(columns, map(json_value, r), strict=True)) for r in rows])


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse anything but one statement that only reads.

    Raises:
        StoreError: says what was found.
    """
    from duckdb import StatementType

    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise StoreError(f"SQL: one statement expected, {len(statements)} found")
    # PIVOT is a MULTI statement; attached stores are read-only, files are out of reach
    if statements[0].type not in (StatementType.SELECT, StatementType.EXPLAIN, StatementType.MULTI):
        raise StoreError(
            f"SQL: {statements[0].type.name} is not allowed, the store is read-only; "
            "use SELECT (results come from `skillwalk run`)"
        )


@contextmanager
def connect(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the published store read-only, without access to any other file; keep it open briefly.

    Raises:
        StoreError: there is no store yet, or it is no DuckDB file of this version.
    """
    import duckdb

    with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as connection:
        attach(connection, lake)
        connection.execute("USE store")
        seal(connection)
        yield connection


def attach(connection: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Attach the published file as `store`, whole, even while a publication replaces it.

    Attached, not opened: DuckDB shares one open file per path and process, so a second reader
    beside a long one would see the file as it was before the last publication. And DuckDB 2.0
    opens a path twice, once for the headers and once for the blocks: when the file changed in
    between, the reader would mix two files, so the identity of the file is compared around it.
    """
    import duckdb

    path = str(lake.store).replace("'", "''")
    for _ in range(ATTEMPTS):
        before = file_identity(lake)
        try:
            connection.execute(f"ATTACH '{path}' AS store (READ_ONLY)")
        except duckdb.Error as error:
            if file_identity(lake) != before:
                continue
            raise StoreError(
                f"{lake.store}: cannot be opened ({error}); publish again with `skillwalk run`"
            ) from None
        if file_identity(lake) == before:
            return
        connection.execute("DETACH store")
    raise StoreError(f"{lake.store}: replaced {ATTEMPTS} times while it was opened; try again")


def file_identity(lake: Lake) -> tuple[int, ...]:
    """Return what tells one published file from the next.

    Raises:
        StoreError: nothing was published yet.
    """
    try:
        found = lake.store.stat()
    except FileNotFoundError:
        raise StoreError(
            f"{lake.store}: no store yet; run `skillwalk run` with this --lake first"
        ) from None
    # a freed inode number may come back, a time of writing does not
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def connect_live(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the same tables and views over the files of all complete folds; results may be newer.

    Files that differ in size from their manifest are left out; checksums are for publication.
    """
    import duckdb

    manifests = [m for m in scan(lake)[0] if defect(m, contents=False) is None]
    try:
        sources = table_sources(manifests)
    except (OSError, StoreError) as error:
        raise StoreError(
            f"a result was replaced while it was read; query again ({error})"
        ) from None
    with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as connection:
        for name, source in sources.items():
            connection.register(name, source)
        create_views(connection)
        seal(connection)
        yield connection


def seal(connection: duckdb.DuckDBPyConnection) -> None:
    """Close the connection to files, extensions and settings; times print in UTC."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def distinct(names: list[str]) -> list[str]:
    """Return column names without repeats: the second `sharpe` becomes `sharpe_2`."""
    result: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in result:
            unique, number = f"{name}_{number}", number + 1
        result.append(unique)
    return result


def json_value(value: Any) -> Any:
    """Return a value of DuckDB as JSON holds it."""
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if math.isfinite(number) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, datetime):
        aware = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [json_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): json_value(v) for k, v in value.items()}
    return value.hex() if isinstance(value, bytes) else str(value)
