"""fold_result: policies and baselines through test windows, as Parquet and manifests."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from assets import checks, plots, tables
from assets.partitions import Partitions
from assets.resources import ExperimentResource, FoldStep, fold_steps, record_execution
from assets.tables import Made
from backtest import identity
from backtest.evaluation.ablation import NONE
from backtest.lake import read_table
from backtest.record import Line, policy_label

if TYPE_CHECKING:
    from opencl.fold_result import FoldResult

CHECKS = ("equity_reconciles", "not_ruined")
SHOWN = ("sharpe", "net_return", "max_drawdown", "n_trades", "exposure", "turnover")
LABEL = ("policy_kind", "variant", "seed")


def fold_result(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset; it reads the fold's own window, its policies and their skill banks.

    Many folds of an instrument are one run, and one rollout plays them.
    """

    @dg.asset(
        name="fold_result",
        group_name="folds",
        partitions_def=partitions.folds,
        deps=[
            "policy",
            "skill_bank",
            dg.AssetDep("features", partition_mapping=partitions.test()),
        ],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool="gpu",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"opencl", "parquet"},
        description="Out of sample: policies in every variant, and baselines; the ablation.",
        check_specs=[
            dg.AssetCheckSpec(name, asset="fold_result", blocking=True) for name in CHECKS
        ],
    )
    def evaluate(context: dg.AssetExecutionContext, experiment: ExperimentResource) -> Made:
        from opencl.fold_result import evaluate_folds

        steps = fold_steps(context, experiment)
        results = {}
        for partition, step in steps.items():
            if step.skipped:
                context.add_asset_metadata(step.metadata, partition_key=partition)
                results[partition] = checks.skipped(CHECKS, step.fold.reason)
        for name in dict.fromkeys(step.instrument for step in steps.values()):
            mine = {p: s for p, s in steps.items() if s.instrument == name and not s.skipped}
            if not mine:
                continue
            first, keys = next(iter(mine.values())), [step.fold.key for step in mine.values()]
            evaluated = evaluate_folds(first.experiment, name, keys, first.run_id)
            for (partition, step), found in zip(mine.items(), evaluated, strict=True):
                record_execution(context, step.experiment)
                context.add_asset_metadata(shown(step, found), partition_key=partition)
                results[partition] = check(step, found)
        return dg.MaterializeResult(check_results=checks.over_folds(CHECKS, results))

    return evaluate


def shown(step: FoldStep, found: "FoldResult") -> dict[str, Any]:
    """Return what the UI shows of a fold's result."""
    manifest, learned = found.manifest, list(found.chosen.values())
    rows = [
        {"policy": f"policy seed {seed}", "variant": variant, **metrics}
        for (seed, variant), metrics in found.learned.items()
    ]
    rows += [{"policy": name, **metrics} for name, metrics in found.baselines.items()]
    files = [vars(file) for file in manifest.files.values()]
    held = found.baselines["buy_and_hold"]
    return {
        **step.metadata,
        "dagster/row_count": manifest.files["equity"].rows,
        "equity_and_baselines": equity_picture(step, found),
        "metrics": tables.table(rows, ("policy", "variant", *SHOWN)),
        "skill_ablation": tables.table(found.ablation),
        "files": tables.table(files, ("path", "rows", "bytes")),
        "path": dg.MetadataValue.path(manifest.folder),
        **tables.figures({name: mean(learned, name) for name in SHOWN}),
        **tables.figures({f"buy_and_hold_{name}": held[name] for name in SHOWN[:2]}),
    }


def check(step: FoldStep, found: "FoldResult") -> list[dg.AssetCheckResult]:
    """Return the results of both checks, from what was written."""
    market, manifest = step.experiment.config.market, found.manifest
    equity = read_table(manifest.path("equity"), [*LABEL, "pnl", "equity"])
    import pyarrow.compute as pc

    sized = equity.append_column("size", pc.abs(equity["pnl"])).group_by(list(LABEL))
    earned = sized.aggregate([("pnl", "sum"), ("size", "sum"), ("equity", "min")])
    earned = earned.rename_columns([*LABEL, "pnl", "size", "lowest"]).to_pylist()
    trades = read_table(manifest.path("trade"), [*LABEL, "pnl"]).group_by(list(LABEL))
    closed = trades.aggregate([("pnl", "sum")]).rename_columns([*LABEL, "pnl"]).to_pylist()
    lowest = {
        f"{row['variant']} seed {row['seed']}": row["lowest"]
        for row in earned
        # what validation did not choose may lose what it likes
        if row["policy_kind"] == "learned" and row["variant"] == found.picks[row["seed"]]
    }
    return [
        checks.equity_reconciles(earned, closed, market.initial_capital),
        checks.not_ruined(lowest, market.ruin_level),
    ]


def equity_picture(step: FoldStep, found: "FoldResult") -> dg.MarkdownMetadataValue:
    """Draw the chosen variant of every seed, the one without skills beside it, and baselines."""
    table = read_table(found.manifest.path("equity"), [*LABEL, "time", "equity"])
    columns = {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}
    lines = []
    for key in sorted(set(zip(*(columns[name].tolist() for name in LABEL), strict=True))):
        kind, variant, seed = key
        learned = kind == "learned"
        if learned and variant not in (NONE, found.picks[seed]):
            continue
        chosen = learned and variant == found.picks[seed]
        label = policy_label(seed, chosen) if learned else variant.replace("_", " ")
        rows = np.logical_and.reduce([columns[n] == v for n, v in zip(LABEL, key, strict=True)])
        lines.append(Line(label, chosen, columns["time"][rows], columns["equity"][rows]))
    lines.sort(key=lambda line: (not line.learned, line.label))
    return plots.equity_plot(lines, f"{step.instrument}, test window {step.fold.key}")


def mean(rows: Sequence[Mapping[str, float | None]], name: str) -> float | None:
    """Return the mean of a metric over seeds; None when one has none."""
    values = [row.get(name) for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
