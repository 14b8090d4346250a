"""walk_forward: all folds together, published to DuckDB; the only writer of the store."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

from typing import Any

import dagster as dg

from assets import checks, plots, tables
from assets.partitions import Partitions
from assets.resources import ExperimentResource, WarehouseResource, begin, run_id
from assets.tables import Made
from backtest import identity
from backtest.ablation_table import ABLATION_COLUMNS
from backtest.lake import Lake
from backtest.record import fold_statuses, stitched
from backtest.summary import COLUMNS, POLICY, Summary, summarize

CHECKS = ("no_fold_missing", "results_whole")
SHOWN = ("sharpe", "net_return", "max_drawdown")  # plotted by materialisation


def walk_forward(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset."""
    every = dg.AllPartitionMapping()

    @dg.asset(
        name="walk_forward",
        group_name="results",
        deps=[dg.AssetDep("fold_result", partition_mapping=every)],
        pool="duckdb_writer",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"duckdb"},
        description="Stitched out-of-sample record of every policy and baseline, in DuckDB.",
        # the data stays when a fold is missing: these stop nothing
        check_specs=checks.specs("walk_forward", CHECKS, None, blocking=False),
    )
    def publish(
        context: dg.AssetExecutionContext,
        experiment: ExperimentResource,
        warehouse: WarehouseResource,
    ) -> Made:
        opened = experiment.open()
        begin(opened, run_id(context))
        published = warehouse.publish(opened, run_id(context))
        lake, study = opened.lake, opened.study_id
        rows = [{"table": name, "rows": count} for name, count in published.rows.items()]
        return dg.MaterializeResult(
            metadata={
                "study_id": study,
                "dagster/row_count": sum(published.rows.values()),
                **{k: v for s in summarize(lake, study) for k, v in shown(lake, s).items()},
                "folds": tables.table(fold_statuses(lake, study)),
                "rows": tables.table(rows),
                "path": dg.MetadataValue.path(published.path),
            },
            check_results=[
                checks.no_fold_missing([m for m in published.missing if m.study_id == study]),
                checks.results_whole(published.problems),
            ],
        )

    return publish


def shown(lake: Lake, summary: Summary) -> dict[str, Any]:
    """Return table, picture and figures of one instrument."""
    name = summary.instrument
    policy = summary.line(POLICY)
    values = {f"{name}_{n}": policy.figure(n).value for n in SHOWN} if policy else {}
    columns = [column or "policy" for column in COLUMNS]
    lines = stitched(lake, summary.study_id, name)
    skills = {}
    if summary.ablation is not None:
        cells = [dict(zip(ABLATION_COLUMNS, row, strict=True)) for row in summary.ablation.table]
        skills = {f"{name}_skills": tables.table(cells)}
    return {
        f"{name}_summary": tables.table(
            [dict(zip(columns, row, strict=True)) for row in summary.table]
        ),
        f"{name}_equity": plots.equity_plot(lines, f"{name}: out of sample, all complete folds"),
        **skills,
        **tables.figures(values),
    }
