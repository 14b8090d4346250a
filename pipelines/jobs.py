"""The four jobs. Dagster runs one partition definition at a time, so the chain is four runs.

ingest [instrument] -> compute_features [window x instrument] -> new_fold [fold x instrument] ->
publish. `pipelines.sensors` links them in the UI, `pipelines.execution` on the command line. A job
cannot have the name of an asset.
"""

from __future__ import annotations

import dagster as dg

from assets.graph import FEATURES, INGEST, NEW_FOLD, WALK_FORWARD

JOBS = {
    "ingest": (INGEST, "Read and check the bars of an instrument, audit the reward on them."),
    "compute_features": (FEATURES, "Compute the features of windows; many windows are one run."),
    "new_fold": (NEW_FOLD, "Collect, train, form skills and evaluate one fold of one instrument."),
    "publish": (WALK_FORWARD, "Publish all folds to DuckDB and write the report."),
}


def jobs(workers: int) -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs; `workers` steps of a run at once."""
    executor = dg.multiprocess_executor.configured({"max_concurrent": workers})
    return [
        dg.define_asset_job(
            name,
            selection=dg.AssetSelection.assets(*assets),
            description=description,
            executor_def=executor,
        )
        for name, (assets, description) in JOBS.items()
    ]
