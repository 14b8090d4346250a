"""walk_forward: all folds together, published to DuckDB; the only writer of the store."""

from __future__ import annotations

import dagster as dg
import numpy as np

from assets import checks, plots, tables
from assets.partitions import Partitions
from assets.resources import ExperimentResource, WarehouseResource, begin, run_id
from backtest import identity

SUMMARY = (
    "SELECT instrument, policy_kind, variant, value AS sharpe, low, high, n "
    "FROM walk_forward_summary WHERE study_id = '{study}' AND name = 'sharpe' "
    "ORDER BY instrument, policy_kind DESC, value DESC NULLS LAST"
)
FIGURES = (
    "SELECT instrument || '_' || name AS name, value FROM walk_forward_summary "
    "WHERE study_id = '{study}' AND variant = 'chosen' "
    "AND name IN ('sharpe', 'net_return', 'max_drawdown')"
)
EQUITY = (
    "SELECT instrument, seed, variant, epoch_ms(time) AS time, equity FROM oos_equity "
    "WHERE study_id = '{study}' AND variant <> 'chosen' ORDER BY time"
)
FOLDS = (
    "SELECT instrument, fold_key, status, reason, n_bars, fold_id FROM fold "
    "WHERE study_id = '{study}' AND NOT superseded ORDER BY instrument, fold_key"
)


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
        check_specs=[
            dg.AssetCheckSpec("no_fold_missing", asset="walk_forward"),
            dg.AssetCheckSpec("results_whole", asset="walk_forward"),
        ],
    )
    def publish(
        context: dg.AssetExecutionContext,
        experiment: ExperimentResource,
        warehouse: WarehouseResource,
    ) -> dg.MaterializeResult[None]:
        opened = experiment.open()
        begin(opened, run_id(context))
        published = warehouse.publish(opened, run_id(context))
        study = opened.study_id
        ours = [m for m in published.missing if m.study_id == study]
        figures = {row["name"]: row["value"] for row in warehouse.rows(FIGURES.format(study=study))}
        return dg.MaterializeResult(
            metadata={
                "study_id": study,
                "dagster/row_count": sum(published.rows.values()),
                "summary": tables.table(warehouse.rows(SUMMARY.format(study=study))),
                **equity_pictures(warehouse.rows(EQUITY.format(study=study))),
                "folds": tables.table(warehouse.rows(FOLDS.format(study=study))),
                "rows": tables.table([{"table": n, "rows": k} for n, k in published.rows.items()]),
                "path": dg.MetadataValue.path(published.path),
                **tables.figures(figures),
            },
            check_results=[
                checks.no_fold_missing(ours),
                checks.results_whole(published.problems),
            ],
        )

    return publish


def equity_pictures(rows: list[dict[str, object]]) -> dict[str, dg.MarkdownMetadataValue]:
    """Draw the stitched equity of each instrument."""
    by_instrument: dict[str, dict[str, list[tuple[object, object]]]] = {}
    for row in rows:
        learned = row["variant"] == "none"
        label = f"policy seed {row['seed']}" if learned else str(row["variant"])
        lines = by_instrument.setdefault(str(row["instrument"]), {})
        lines.setdefault(label, []).append((row["time"], row["equity"]))
    return {
        f"equity_{name}": plots.equity_plot(
            {
                label: (
                    np.array([t for t, _ in points], "datetime64[ms]"),
                    np.array([e for _, e in points], float),
                )
                for label, points in sorted(lines.items())
            },
            [label for label in lines if label.startswith("policy")],
            f"{name}: out of sample, all complete folds",
        )
        for name, lines in by_instrument.items()
    }
