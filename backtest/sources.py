"""The store's tables as Arrow sources over the files of manifests: what publication loads.

One source per table, however many files: thousands of small ones cost one scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from backtest.lake import read_table
from backtest.manifest import FoldHeader, Manifest
from backtest.schema import declared

if TYPE_CHECKING:
    import pyarrow as pa


class Missing(NamedTuple):
    """A fold that was expected and has no result."""

    study_id: str
    instrument: str
    fold_key: str
    fold_id: str
    status: str
    reason: str | None


def newest(manifests: Iterable[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """Return the newest fold result by (study_id, instrument, fold_key); others are superseded."""
    found: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        header = manifest.header
        if isinstance(header, FoldHeader):
            key = header.study_id, header.instrument, header.fold_key
            if key not in found or found[key].created <= manifest.created:
                found[key] = manifest
    return found


def table_sources(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return an Arrow table or dataset for every table of the schema, by name."""
    sources = {name: _dataset(name, manifests) for name in declared()}
    sources["fold"] = fold_rows(manifests)
    return sources


def fold_rows(manifests: Sequence[Manifest]) -> pa.Table:
    """Return the rows of table fold: results with `superseded` set, then plans without result."""
    import pyarrow as pa

    results = _dataset("fold", [m for m in manifests if isinstance(m.header, FoldHeader)])
    table = results if isinstance(results, pa.Table) else results.to_table()
    current = newest(manifests)
    live = {m.header.fold_id for m in current.values() if isinstance(m.header, FoldHeader)}
    superseded = pa.array([v not in live for v in table["fold_id"].to_pylist()], pa.bool_())
    place = table.schema.get_field_index("superseded")
    table = table.set_column(place, table.schema.field(place), superseded)
    plans: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in planned(manifests):
        key = row["study_id"], row["instrument"], row["fold_key"]
        if key not in current:
            plans[key] = row  # the newest plan that names the fold
    return pa.concat_tables([table, pa.Table.from_pylist(list(plans.values()), table.schema)])


def planned(manifests: Iterable[Manifest]) -> list[dict[str, Any]]:
    """Return the fold rows of all plans, oldest plan first."""
    plans = [m for m in manifests if not isinstance(m.header, FoldHeader) and "fold" in m.files]
    plans.sort(key=lambda m: m.created)
    return [row for m in plans for row in read_table(m.path("fold")).to_pylist()]


def missing_folds(manifests: Sequence[Manifest]) -> tuple[Missing, ...]:
    """Return planned folds without a result of that fold_id, and newest results that failed.

    Skipped folds are not missing: there was nothing to compute.
    """
    done = {m.header.fold_id for m in manifests if isinstance(m.header, FoldHeader)}
    rows = [r for r in planned(manifests) if r["fold_id"] not in done]
    failed = [m for m in newest(manifests).values() if m.status in ("failed", "missing")]
    rows += [row for m in failed for row in read_table(m.path("fold")).to_pylist()]
    found = (Missing(*(row[f] for f in Missing._fields)) for row in rows)
    return tuple(sorted((m for m in found if m.status != "skipped"), key=lambda m: m[:4]))


def _dataset(name: str, manifests: Iterable[Manifest]) -> Any:
    """Return a dataset over the files of one table; columns they lack are NULL."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    schema = pa.schema([f.with_nullable(True) for f in declared()[name].schema])
    files = [str(m.path(name)) for m in manifests if name in m.files]
    return ds.dataset(files, schema=schema, format="parquet") if files else schema.empty_table()
