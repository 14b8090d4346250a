"""skill_bank: the banks of every seed of a fold, formed on train rows, chosen on validation."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset.

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import checks, plots, tables
from assets.partitions import Partitions
from assets.resources import ExperimentResource, FoldStep, fold_step
from assets.tables import Made
from assets.trials import summaries_by_seed
from backtest import identity
from backtest.errors import StoreError
from backtest.evaluation.ablation import NONE, gate_faults
from opencl.trials import Runner

CHECKS = ("bank_matches_weights", "gate_ran")
NO_BANKS = "skills.banks is empty: the only variant is none"
SHOWN = (
    "seed",
    "variant",
    "alpha_task",
    "alpha_step",
    "adopted",
    "chosen",
    "validation_delta",
    "validation_low",
    "validation_high",
    "decisions_changed_validation",
)
Summaries = Mapping[int, Mapping[str, Any]]  # of `opencl.skills.form_skills`, by seed


def skill_bank(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset; it reads train and validation windows."""

    @dg.asset(
        name="skill_bank",
        group_name="folds",
        partitions_def=partitions.folds,
        deps=[
            "policy",
            dg.AssetDep("features", partition_mapping=partitions.train_and_validation()),
        ],
        pool="gpu",
        code_version=identity.code_hash()[: identity.ID_DIGITS],
        kinds={"pytorch", "opencl"},
        description="Latent corrections learned beside the policy; validation decides their use.",
        check_specs=checks.specs("skill_bank", CHECKS, partitions.folds, blocking=True),
    )
    def form_all(
        context: dg.AssetExecutionContext,
        experiment: ExperimentResource,
        runner: dg.ResourceParam[Runner],
    ) -> Made:
        from opencl.variants import read_summary

        step = fold_step(context, experiment)
        if step.skipped:
            results = checks.skipped(CHECKS, step.fold.reason)
            return dg.MaterializeResult(metadata=step.metadata, check_results=results)
        settings = step.experiment.config.skills
        if not settings.banks:
            return dg.MaterializeResult(
                metadata={
                    **step.metadata,
                    "banks": NO_BANKS,
                    "variants": tables.table([{"variant": NONE, "chosen": True}]),
                },
                check_results=checks.skipped(CHECKS, NO_BANKS),
            )
        seeds = step.experiment.config.study.seeds
        policies = {seed: read_summary(step.policies(), seed, "policy") for seed in seeds}
        summaries = summaries_by_seed(step, "form", runner, context.log.info)
        chosen = {seed: variant(entries(s), "chosen") for seed, s in summaries.items()}
        context.log.info(f"chosen by seed: {chosen}")
        faults = {
            seed: gate_faults(settings.banks, settings.finetune, entries(summary))
            for seed, summary in summaries.items()
        }
        return dg.MaterializeResult(
            metadata={
                **step.metadata,
                **pictures(step, summaries),
                "variants": tables.table(variant_rows(summaries), SHOWN),
                "budget": tables.table(budget_rows(summaries)),
                "path": dg.MetadataValue.path(step.skills()),
                **tables.figures(shares(summaries)),
            },
            check_results=[
                checks.bank_matches_weights(refused(step, policies, summaries)),
                checks.gate_ran(faults),
            ],
        )

    return form_all


def entries(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what validation said of each variant of a seed."""
    found: list[dict[str, Any]] = summary["variants"]
    return found


def variant(found: list[dict[str, Any]], flag: str) -> str:
    """Return the names of the variants with a flag."""
    return ", ".join(entry["variant"] for entry in found if entry[flag]) or "nothing"


def refused(
    step: FoldStep, policies: Mapping[int, Mapping[str, Any]], summaries: Summaries
) -> dict[str, str]:
    """Return why a bank cannot be used with the policy of its seed, by seed and bank."""
    from backtest.agent.bank import Bank

    found = {}
    for seed, summary in summaries.items():
        for name, path in summary["banks"].items():
            try:
                policy = policies[seed]["policy"]
                Bank.load(step.experiment.lake.root / path, policy["weight_hash"])
            except StoreError as error:
                found[f"seed {seed} {name}"] = str(error)
    return found


def pictures(step: FoldStep, summaries: Summaries) -> dict[str, Any]:
    """Draw occupancy, utility and hit rate of every bank."""
    skills = rows(summaries, "skill")
    title = f"{step.instrument}, fold {step.fold.key}"
    return {
        "occupancy": plots.occupancy_plot(skills, f"{title}: slots by state"),
        "utility": plots.utility_plot(skills, f"{title}: what each skill was worth"),
        "hit_rate": plots.hit_rate_plot(rows(summaries, "bank_stat"), f"{title}: searches"),
    }


def rows(summaries: Summaries, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of every seed."""
    return [{**row, "seed": seed} for seed, s in summaries.items() for row in s[table]]


def variant_rows(summaries: Summaries) -> list[dict[str, Any]]:
    """Return a row for each seed and variant."""
    return [
        {
            **entry,
            "seed": seed,
            "alpha_task": entry["alpha"].get("task"),
            "alpha_step": entry["alpha"].get("step"),
        }
        for seed, summary in summaries.items()
        for entry in entries(summary)
    ]


def budget_rows(summaries: Summaries) -> list[dict[str, Any]]:
    """Return what each stage of each seed took: rows, updates and seconds."""
    found = []
    for seed, summary in summaries.items():
        row: dict[str, Any] = {"seed": seed}
        for name, value in summary["budget"].items():
            row |= (
                {f"{name}_{part}": amount for part, amount in value.items()}
                if isinstance(value, Mapping)
                else {name: value}
            )
        found.append(row)
    return found


def shares(summaries: Summaries) -> dict[str, float]:
    """Return figures that are plotted by partition: slots in use, and seeds that use a bank."""
    skills = rows(summaries, "skill")
    taken = sum(row["state"] != "free" for row in skills)
    using = [
        not any(e["chosen"] and e["variant"] == NONE for e in entries(s))
        for s in summaries.values()
    ]
    return {
        "share_of_slots_in_use": taken / len(skills) if skills else 0.0,
        "share_of_seeds_with_skills": sum(using) / len(using),
    }
