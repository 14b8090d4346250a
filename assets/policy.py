"""policy: every seed of a fold trained, in rounds of collect, update and validate."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import checks, plots, tables
from assets.experience import read_digest
from assets.partitions import Partitions
from assets.resources import ExperimentResource, FoldStep, fold_step
from assets.tables import Made
from assets.trials import summaries_by_seed
from backtest import identity
from backtest.errors import DataError
from opencl.trials import Runner

CHECKS = ("range_holds", "control_fails")
# means over seeds of the forecasts' quality, plotted by partition
PLOTTED = ("aux_auc", "aux_shuffled_auc", "aux_sd", "coverage_50", "coverage_90")
SHOWN = (
    "seed",
    "best_epoch",
    "train_sharpe",
    "validation_sharpe",
    "v_max",
    "edge_mass",
    "steps",
    "updates",
    "weight_hash",
    "run_id",
)


def policy(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset; it reads train and validation windows."""

    @dg.asset(
        name="policy",
        group_name="folds",
        partitions_def=partitions.folds,
        deps=[
            "experience",
            dg.AssetDep("features", partition_mapping=partitions.train_and_validation()),
        ],
        pool="gpu",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"pytorch", "opencl"},
        description="Branching dueling C51 DQN of every seed; the best epoch by validation.",
        check_specs=checks.specs("policy", CHECKS, partitions.folds, blocking=False),
    )
    def train_all(
        context: dg.AssetExecutionContext,
        experiment: ExperimentResource,
        runner: dg.ResourceParam[Runner],
    ) -> Made:
        step = fold_step(context, experiment)
        if step.skipped:
            results = checks.skipped(CHECKS, step.fold.reason)
            return dg.MaterializeResult(metadata=step.metadata, check_results=results)
        summaries = summaries_by_seed(step, "train", runner, context.log.info)
        check_first_round(step, summaries)
        rows = {seed: summary["policy"] for seed, summary in summaries.items()}
        best = (f"{seed}: {tables.cell(row['validation_sharpe'])}" for seed, row in rows.items())
        context.log.info(f"best validation Sharpe by seed: {', '.join(best)}")
        reports = {seed: summary["aux_report"] for seed, summary in summaries.items()}
        curves = {f"seed {seed}": summary["curve"] for seed, summary in summaries.items()}
        first = next(iter(rows.values()))
        return dg.MaterializeResult(
            metadata={
                **step.metadata,
                "seeds": tables.table(
                    [{**row, "weight_hash": row["weight_hash"][:12]} for row in rows.values()],
                    SHOWN,
                ),
                "learning_curves": plots.learning_curves(
                    curves, f"{step.instrument}, fold {step.fold.key}"
                ),
                "network": first["network"],
                "device": first["device"],
                "path": dg.MetadataValue.path(step.policies()),
                **tables.figures(means(list(rows.values()), ("train_sharpe", "validation_sharpe"))),
                **tables.figures(means(list(rows.values()), ("v_max", "edge_mass"))),
                **forecasts(reports),
            },
            check_results=[
                checks.range_holds(
                    {seed: s["range_failed"] for seed, s in summaries.items()},
                    {seed: row["edge_mass"] for seed, row in rows.items()},
                ),
                checks.control_fails(reports),
            ],
        )

    return train_all


def forecasts(reports: Mapping[int, Mapping[str, float | None]]) -> dict[str, Any]:
    """Return the quality of the frozen forecasts by seed, and means of it to plot.

    Args:
        reports: `aux_report` of the summaries; empty ones: nothing is forecast.
    """
    rows = [{"seed": seed, **report} for seed, report in reports.items() if report]
    if not rows:
        return {}
    names = tuple(name for name in PLOTTED if name in rows[0])
    return {"forecasts": tables.table(rows), **tables.figures(means(rows, names))}


def check_first_round(step: FoldStep, summaries: dict[int, dict[str, Any]]) -> None:
    """Compare the policies' first round with the experience on disk.

    Raises:
        DataError: a policy did not begin with the experience of this partition.
    """
    for seed, summary in summaries.items():
        if read_digest(step, seed) != summary["first_round"]:
            raise DataError(
                f"{step.experience()}: seed {seed} did not begin with this experience; materialise "
                f"asset experience of {step.instrument} {step.fold.key} on the policy's device, "
                f"{summary['policy']['device']}, or delete {step.policies()} and train again"
            )


def means(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, float | None]:
    """Return the mean over seeds of each figure; None when a seed has none."""
    found: dict[str, float | None] = {}
    for name in names:
        values = [row[name] for row in rows]
        found[name] = None if None in values else sum(values) / len(values)
    return found
