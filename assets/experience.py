"""experience: the first, exploring collection of every seed of a fold, inspectable by SQL."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from assets import checks, tables
from assets.partitions import Partitions, of_instrument
from assets.resources import DeviceResource, ExperimentResource, FoldStep, fold_step
from assets.tables import Made
from backtest import identity
from backtest.lake import write_table
from backtest.market.layout import COMPONENTS

if TYPE_CHECKING:
    from backtest.agent.experience import Experience

CHECKS = ("fold_disjoint", "kernel_equals_oracle")
DIGEST = b"skillwalk.digest"


def experience(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset; it reads train windows and nothing else."""

    @dg.asset(
        name="experience",
        group_name="folds",
        partitions_def=partitions.folds,
        deps=[
            dg.AssetDep("features", partition_mapping=partitions.train()),
            dg.AssetDep("reward_audit", partition_mapping=of_instrument()),
        ],
        pool="gpu",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"opencl", "parquet"},
        description="Random actions on the train windows: every decision with all reward terms.",
        check_specs=checks.specs("experience", CHECKS, partitions.folds, blocking=True),
    )
    def collect(
        context: dg.AssetExecutionContext, experiment: ExperimentResource, device: DeviceResource
    ) -> Made:
        from opencl.training import exploring_collection

        step = fold_step(context, experiment)
        if step.skipped:
            results = checks.skipped(CHECKS, step.fold.reason)
            return dg.MaterializeResult(metadata=step.metadata, check_results=results)
        chosen = device.select()
        results = [checks.fold_disjoint(step.fold, step.experiment.config.folds)]
        rows: list[dict[str, Any]] = []
        for seed in step.experiment.config.study.seeds:
            collected, tape = exploring_collection(step.spec(seed), chosen)
            collected.check(tape.start, tape.stop)
            path = write(step, seed, collected)
            rows.append({"seed": seed, **seed_row(collected)})
            if len(rows) == 1:
                exact = chosen.correctly_rounded
                results.append(checks.kernel_equals_oracle(tape, collected, exact))
        steps = sum(row["decisions"] for row in rows)
        context.log.info(f"{steps:,} decisions of {len(rows)} seeds")
        return dg.MaterializeResult(
            metadata={
                **step.metadata,
                **tables.parquet(path),  # one file a seed, all alike
                "dagster/row_count": steps,
                "path": dg.MetadataValue.path(step.experience()),
                "device": chosen.name,
                "seeds": tables.table(rows),
            },
            check_results=results,
        )

    return collect


def write(step: FoldStep, seed: int, collected: "Experience") -> Path:
    """Write the decisions of a seed as Parquet with their digest; return the path."""
    from opencl.first_round import digest

    path = step.experience() / f"seed_{seed}.parquet"
    table = collected.to_table()
    metadata = {DIGEST: digest(collected).encode(), b"seed": str(seed).encode()}
    write_table(path, table.replace_schema_metadata(metadata))
    return path


def read_digest(step: FoldStep, seed: int) -> str | None:
    """Return the digest of a seed's file, or None when there is no such file."""
    import pyarrow.parquet as pq

    path = step.experience() / f"seed_{seed}.parquet"
    if not path.is_file():
        return None
    metadata = pq.read_schema(path).metadata or {}
    return str(metadata.get(DIGEST, b"").decode())


def seed_row(collected: "Experience") -> dict[str, Any]:
    """Return mean reward, components and lowest equity of a collection."""
    alive = collected.alive
    row: dict[str, Any] = {
        "decisions": collected.steps,
        "mean_reward": float(collected.reward[alive].mean(dtype=np.float64)),
        "std_reward": float(collected.reward[alive].std(dtype=np.float64)),
        "lowest_equity": float(collected.equity[alive].min()),
    }
    if collected.components is not None:
        means = collected.components[alive].mean(axis=0, dtype=np.float64)
        row |= dict(zip(COMPONENTS, means.tolist(), strict=True))
    return row
