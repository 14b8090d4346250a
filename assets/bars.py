"""raw_bars (the source as it was handed over) and bars (clean, on one axis) of each instrument."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

import dagster as dg
import numpy as np

from assets import checks, plots, tables
from assets.partitions import INSTRUMENTS
from assets.resources import ExperimentResource
from assets.tables import Made
from backtest import identity
from backtest.data.fingerprint import fingerprint
from backtest.data.ingest import ingest

ISSUES = ("kind", "first_row", "rows", "policy", "action", "message")


def bar_assets() -> list[dg.AssetsDefinition]:
    """Return raw_bars and bars."""
    code_version = identity.code_hash()[: identity.ID_DIGITS]

    @dg.asset(
        group_name="data",
        partitions_def=INSTRUMENTS,
        code_version=code_version,
        kinds={"csv", "parquet"},
        description="The source of an instrument: a file, a shipped example or the generator.",
    )
    def raw_bars(context: dg.AssetExecutionContext, experiment: ExperimentResource) -> Made:
        found = fingerprint(experiment.open().instrument(context.partition_key))
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": found.rows,
                "source": found.source,
                "kind": found.kind,
                "path": dg.MetadataValue.path(str(found.path or "")),
                "bytes": found.bytes,
                "sha256": found.sha256,
            },
            data_version=dg.DataVersion(found.sha256),
        )

    @dg.asset(
        group_name="data",
        partitions_def=INSTRUMENTS,
        deps=[raw_bars],
        code_version=code_version,
        kinds={"parquet"},
        description="Clean bars on one global axis, and what was found in the source.",
        check_specs=checks.specs("bars", ("time_order", "no_nan"), INSTRUMENTS, blocking=True),
    )
    def bars(context: dg.AssetExecutionContext, experiment: ExperimentResource) -> Made:
        opened, name = experiment.open(), context.partition_key
        found = ingest(name, opened.instrument(name), opened.lake.root)
        clean = found.bars
        for sentence in found.assumptions[:10]:
            context.log.info(sentence)
        time = clean.time.astype("datetime64[ns]")
        return dg.MaterializeResult(
            metadata={
                **tables.parquet(found.path),
                "first": str(np.datetime_as_string(time[0], "s")),
                "last": str(np.datetime_as_string(time[-1], "s")),
                "spacing": str(found.spacing),
                "rolls": int(clean.roll.sum()),
                "data_issue": tables.table([vars(i) for i in found.issues], ISSUES),
                "close": plots.price_plot(time, clean.close, name),
            },
            check_results=[checks.time_order(clean), checks.finite_bars(clean)],
            data_version=dg.DataVersion(clean.content_hash),
        )

    return [raw_bars, bars]
