"""Publication: manifests in, one DuckDB file out, replaced as a whole.

Readers always open a complete file; a crash at any moment leaves the last good one. Results that
cannot be read are reported and left out, never fatal to others.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backtest.errors import StoreError
from backtest.lake import Lake, replace
from backtest.manifest import FoldHeader, Manifest, defect, scan
from backtest.schema import create_tables, create_views, declared
from backtest.sources import Missing, missing_folds, newest, table_sources

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Published:
    """What a publication put into the store."""

    path: Path
    folds: int  # newest results, one per study, instrument and fold key
    superseded: int  # earlier results, kept and marked
    rows: dict[str, int]  # by table
    missing: tuple[Missing, ...]  # expected folds without a result
    problems: tuple[str, ...]  # results left out, and why


def publish(lake: Lake) -> Published:
    """Rebuild the store from every manifest of the lake; waits for a publication under way.

    Raises:
        StoreError: the new file failed its checks; the last good one stays.
    """
    import duckdb

    with lake.publishing():
        building = lake.store.with_name(lake.store.name + ".new")
        discard(building)
        manifests, problems = readable(lake)
        try:
            try:
                rows = build(building, manifests)
            except duckdb.ConstraintException:
                manifests, refused = compatible(building, manifests)
                problems += refused
                rows = build(building, manifests)
            missing = missing_folds(manifests)
            replace(building, lake.store)
        except duckdb.Error as error:
            raise StoreError(f"{building}: {error}; the published store is unchanged") from error
        finally:
            discard(building)
    results = [m for m in manifests if isinstance(m.header, FoldHeader)]
    current = newest(results)
    return Published(
        path=lake.store,
        folds=len(current),
        superseded=len(results) - len(current),
        rows=rows,
        missing=missing,
        problems=tuple(problems),
    )


def readable(lake: Lake) -> tuple[list[Manifest], list[str]]:
    """Return the manifests whose files are all whole, and what is wrong with the others."""
    manifests, problems = scan(lake)
    whole = []
    for manifest in manifests:
        if problem := defect(manifest):
            problems.append(problem)
        else:
            whole.append(manifest)
    return whole, problems


def build(path: Path, manifests: Sequence[Manifest]) -> dict[str, int]:
    """Write a complete store to `path`; return its rows by table.

    Raises:
        duckdb.ConstraintException: two manifests hold the same key.
        StoreError: the file is not what the manifests say.
    """
    import duckdb

    discard(path)
    sources = table_sources(manifests)
    with duckdb.connect(str(path)) as connection:
        create_tables(connection)
        rows = {name: insert(connection, name, source) for name, source in sources.items()}
        create_views(connection)
        check(connection, rows, manifests)
        connection.execute("CHECKPOINT")
    if wal(path).exists():
        raise StoreError(f"{path}: DuckDB left a log behind; is the disk full?")
    return rows


def insert(connection: duckdb.DuckDBPyConnection, name: str, source: object) -> int:
    """Load one Arrow source into its table; return the number of rows."""
    connection.register("source", source)
    connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM source")
    connection.unregister("source")
    ((count,),) = connection.execute(f"SELECT count(*) FROM {name}").fetchall()
    return int(count)


def check(
    connection: duckdb.DuckDBPyConnection, rows: dict[str, int], manifests: Sequence[Manifest]
) -> None:
    """Compare the loaded store with its manifests; keys were enforced on loading.

    Raises:
        StoreError: rows were lost, or two results of one fold key are both current.
    """
    for name in declared():
        expected = sum(m.files[name].rows for m in manifests if name in m.files)
        # plans leave the table when their fold has a result
        if rows[name] != expected and name != "fold":
            raise StoreError(f"table {name}: {rows[name]} rows loaded, manifests say {expected}")
    twice = connection.execute(
        "SELECT study_id, instrument, fold_key FROM fold WHERE NOT superseded "
        "GROUP BY ALL HAVING count(*) > 1"
    ).fetchall()
    if twice:
        raise StoreError(f"folds {twice} have two current rows each; remove one plan or result")


def compatible(path: Path, manifests: Sequence[Manifest]) -> tuple[list[Manifest], list[str]]:
    """Load manifests one by one, newest first; return those without conflict, and the others."""
    import duckdb

    discard(path)
    kept, refused = [], []
    with duckdb.connect(str(path)) as connection:
        create_tables(connection, comments=False)
        for manifest in sorted(manifests, key=lambda m: m.created, reverse=True):
            connection.begin()
            try:
                for name, source in table_sources([manifest]).items():
                    if name in manifest.files:
                        insert(connection, name, source)
                connection.commit()
                kept.append(manifest)
            except duckdb.ConstraintException as error:
                connection.rollback()
                connection.execute("DROP VIEW IF EXISTS source")
                refused.append(f"{manifest.folder}: left out: {error}")
    folders = {m.folder for m in kept}
    return [m for m in manifests if m.folder in folders], refused


def wal(path: Path) -> Path:
    """Return DuckDB's log beside a database file."""
    return path.with_name(path.name + ".wal")


def discard(path: Path) -> None:
    """Remove an unfinished store, its log and its spill folder."""
    path.unlink(missing_ok=True)
    wal(path).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)
