"""features: one file for each window and instrument, computed from the whole history."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

import dagster as dg

from assets import checks, tables
from assets.partitions import Partitions, of_instrument, parts
from assets.resources import ExperimentResource
from assets.tables import Made
from backtest import identity
from backtest.features.table import FeatureTable, feature_hash


def features(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset; many windows of an instrument are one run."""

    @dg.asset(
        name="features",
        group_name="data",
        partitions_def=partitions.windows,
        deps=[dg.AssetDep("bars", partition_mapping=of_instrument())],
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"parquet"},
        description="42 causal features a bar and 42 of the last closed slow bar: ADX, CUSUM, ...",
        # one result for all windows of a run
        check_specs=checks.specs("features", ("no_nan",), None, blocking=True),
    )
    def compute(context: dg.AssetExecutionContext, experiment: ExperimentResource) -> Made:
        opened = experiment.open()
        written: dict[str, FeatureTable] = {}
        for partition in context.partition_keys:
            name, key = parts(partition)
            window = opened.windows(name).get(key)
            if not window:
                context.add_asset_metadata({"status": "skipped: no bars"}, partition_key=partition)
                continue
            part = opened.write_window(name, key)
            written[str(partition)] = part.slice(window.start, window.stop)
            path = opened.lake.features(opened.study_id, name, key)
            context.add_asset_metadata(
                {
                    **tables.parquet(path),
                    "first_bar": window.start,
                    "stop_bar": window.stop,
                    "mean_adx": float(part["adx"].mean()),
                    "cusum_events": int((part.cusum_event != 0).sum()),
                    "feature_hash": feature_hash(part),
                },
                partition_key=partition,
            )
        context.log.info(f"{len(written)} of {len(context.partition_keys)} windows have bars")
        warmup = opened.config.folds.warmup
        return dg.MaterializeResult(
            metadata={"study_id": opened.study_id},
            check_results=[checks.finite_features(written, warmup)],
        )

    return compute
