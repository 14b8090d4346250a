"""Results as files: one folder per fold or part, one Parquet file per table, the manifest last.

Everything is checked against `schema.sql` before the first byte is written. Publication into
DuckDB is `backtest.publication`; SQL is `backtest.queries`.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backtest.errors import StoreError
from backtest.identity import Provenance
from backtest.lake import Lake, locked, write_table
from backtest.manifest import (
    NAME,
    File,
    FoldHeader,
    Manifest,
    PartHeader,
    checksum,
    defect,
    now,
    read_manifest,
    write_manifest,
)
from backtest.schema import Rows, conform, create_tables

if TYPE_CHECKING:
    import pyarrow as pa

FOLD_TABLES = (
    "fold",
    "trial",
    "trial_return",
    "policy",
    "curve",
    "equity",
    "trade",
    "metric",
    "reward_component",
    "skill",
    "bank_stat",
    "skill_ablation",
    "aux_verdict",
    "forecast_quality",
    "feature_stat",
)
PART_TABLES = ("study", "run", "fold", "trial", "trial_return", "metric", "reward_audit")
DATA_TABLES = ("data_issue",)  # belong to an instrument, whatever the study
NO_RESULT = ("missing", "skipped", "failed")


def write_fold_result(lake: Lake, header: FoldHeader, tables: Mapping[str, Rows]) -> Manifest:
    """Write the rows of one fold; an earlier result of the same fold_id is replaced.

    Columns that the header knows (fold_id, study_id, instrument, fold_key, run_id, scope,
    scope_id, superseded) may be left out. `fold` must be there with one row.

    Args:
        lake: where.
        header: whose rows these are.
        tables: rows by table, as `backtest.schema.conform` takes them.

    Raises:
        StoreError: a table, column, type, key or value that the schema refuses; nothing written.
    """
    rows = conform_all(header, tables, FOLD_TABLES)
    if "fold" not in rows or rows["fold"].num_rows != 1:
        raise StoreError(f"fold {header.fold_key}: table fold needs exactly one row")
    return _write(lake, header, rows["fold"]["status"][0].as_py(), rows)


def write_part(lake: Lake, header: PartHeader, tables: Mapping[str, Rows]) -> Manifest:
    """Write rows of a study, of an instrument, or both; an earlier part of that name is replaced.

    Metric rows take their scope from the header. Rows of `fold` are the plan: folds without a
    result (missing, skipped, failed), shown until a result of the same fold key exists.

    Raises:
        StoreError: see `write_fold_result`.
    """
    if not header.study_id and not header.instrument:
        raise StoreError(f"part {header.name}: needs a study_id, an instrument, or both")
    rows = conform_all(header, tables, PART_TABLES if header.study_id else DATA_TABLES)
    planned = rows["fold"]["status"].to_pylist() if "fold" in rows else []
    if odd := sorted(set(planned) - set(NO_RESULT)):
        raise StoreError(f"part {header.name}: folds of status {odd} need a fold result")
    return _write(lake, header, "", rows)


def record_study(
    lake: Lake, study_id: str, run_id: str, settings: Mapping[str, Any], source: Provenance
) -> None:
    """Write the row of a study; the first execution wins, later ones change nothing.

    Args:
        lake: where.
        study_id: the study.
        run_id: this execution.
        settings: `backtest.identity.study_settings`.
        source: `backtest.identity.provenance`.
    """
    header = PartHeader("study", run_id, study_id)
    if (header.folder(lake) / NAME).exists():
        return
    row = {
        "config": dict(settings),
        "code_hash": source.code_hash,
        "created": datetime.now(UTC),
        "package_version": source.package_version,
        "library_versions": source.library_versions,
    }
    write_part(lake, header, {"study": [row]})


def record_run(lake: Lake, row: Mapping[str, Any]) -> None:
    """Write or rewrite the row of one execution; call at its start and at its end.

    Args:
        lake: where.
        row: every column of table run.
    """
    header = PartHeader(f"run-{row['run_id']}", row["run_id"], row["study_id"])
    write_part(lake, header, {"run": [row]})


def fold_result(lake: Lake, header: FoldHeader) -> Manifest | None:
    """Return the result of exactly this fold_id, or None when it is absent or damaged.

    Resumed runs skip a fold that has one; its run_id is that of the execution that wrote it.
    """
    try:
        manifest = read_manifest(header.folder(lake))
    except StoreError:
        return None
    return None if defect(manifest) else manifest


def conform_all(
    header: FoldHeader | PartHeader, tables: Mapping[str, Rows], allowed: tuple[str, ...]
) -> dict[str, pa.Table]:
    """Return all tables in the schema's form, after a trial load into an empty store.

    Raises:
        StoreError: names the table and what DuckDB or `conform` refused.
    """
    import duckdb

    if unknown := [t for t in tables if t not in allowed]:
        raise StoreError(f"tables {unknown} do not belong here; allowed are {', '.join(allowed)}")
    conformed = {t: conform(t, rows, header.fixed(t)) for t, rows in tables.items()}
    with duckdb.connect(":memory:") as connection:
        create_tables(connection, comments=False)
        for name, table in conformed.items():
            connection.register("source", table)
            try:
                connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM source")
            except duckdb.Error as error:
                raise StoreError(f"table {name}: {error}") from None
            connection.unregister("source")
    return conformed


def _write(
    lake: Lake, header: FoldHeader | PartHeader, status: str, tables: Mapping[str, pa.Table]
) -> Manifest:
    """Write files beside those of an earlier result, then let the manifest point at them."""
    folder = header.folder(lake)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        earlier = [p for p in folder.iterdir() if p.is_dir()]
        data = folder / uuid.uuid4().hex[:12]
        files = {}
        try:
            for name, table in tables.items():
                path = data / f"{name}.parquet"
                write_table(path, table)
                files[name] = File(
                    path=path.relative_to(folder).as_posix(),
                    rows=table.num_rows,
                    bytes=path.stat().st_size,
                    sha256=checksum(path),
                )
        except BaseException:
            shutil.rmtree(data, ignore_errors=True)
            raise
        # a publisher may be reading the earlier files: they go only while none runs
        with lake.publishing() if earlier else nullcontext():
            manifest = Manifest(folder, header, status, now(), files)
            write_manifest(manifest)
            for path in earlier:
                shutil.rmtree(path)
    return manifest
