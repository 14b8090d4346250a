"""What earlier assets and the test window left of one seed, as the rows that the store takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from backtest.evaluation.ablation import FINETUNE, NONE
from backtest.evaluation.rows import Row
from backtest.market.layout import BRANCHES
from backtest.schema import declared
from opencl.plays import Played
from opencl.variants import SeedSummary


def seed_rows(
    summary: SeedSummary, played: Sequence[Played], run_id: str, learned: Collection[str]
) -> dict[str, list[Row]]:
    """Return the rows of policy, curve, trial and trial_return; with banks skill and bank_stat.

    Args:
        summary: of the assets policy and skill_bank.
        played: every variant in the test window.
        run_id: this execution, which writes the rows; an earlier one may have trained.
        learned: branches of the action that the network learns.
    """
    trained = summary.trained
    # a branch that is not learned has no entropy
    fixed = {f"entropy_{branch}": None for branch in BRANCHES if branch not in learned}
    names = set(declared()["curve"].schema.names)
    trials = [{**trained["trial"], "trial_return": trained["trial_return"]}, *tried(summary)]
    rows = {
        "policy": [policy_row(summary, run, run_id) for run in played],
        "curve": [
            {k: v for k, v in (row | fixed).items() if k in names} for row in trained["curve"]
        ],
        "trial": [trial_row(trial) for trial in trials],
        "trial_return": [
            {"trial_id": trial["trial_id"], **row}
            for trial in trials
            for row in trial["trial_return"]
        ],
    }
    return rows if summary.formed is None else rows | bank_rows(summary, played)


def tried(summary: SeedSummary) -> Iterable[Mapping[str, Any]]:
    """Return every trial of the ablation, each with its returns; deflation counts them all."""
    return [] if summary.formed is None else summary.formed["trials"]


def trial_row(trial: Mapping[str, Any]) -> Row:
    """Return a row of table trial; JSON holds its time as text."""
    row = {name: value for name, value in trial.items() if name != "trial_return"}
    return {**row, "started": datetime.fromisoformat(trial["started"])}


def policy_row(summary: SeedSummary, run: Played, run_id: str) -> Row:
    """Return the row of table policy of one variant."""
    trained = {**summary.trained["policy"], "run_id": run_id}
    entry, policy = run.variant.entry, run.variant.policy
    if run.variant.name == NONE:
        return trained
    row = trained | {
        "variant": run.variant.name,
        "validation_sharpe": validation_sharpe(summary, entry),
        "train_sharpe": None,
    }
    if run.variant.name != FINETUNE:
        return row
    return row | {
        "path": entry["policy"],
        "weight_hash": policy.weights.weight_hash,
        "steps": policy.steps,
        "updates": policy.update,
        "best_epoch": None,
        "v_min": -policy.v_max,
        "v_max": policy.v_max,
        "edge_mass": None,
    }


def validation_sharpe(summary: SeedSummary, entry: Mapping[str, Any]) -> float | None:
    """Return the objective of the trial that tried a variant at its alpha; None: not tried."""
    for trial in tried(summary):
        params = trial["params"]
        if params.get("variant") == entry["variant"] and params.get("alpha") == entry["alpha"]:
            value: float | None = trial["objective"]
            return value
    return None


def bank_rows(summary: SeedSummary, played: Sequence[Played]) -> dict[str, list[Row]]:
    """Return the rows of skill and bank_stat with what the test window retrieved.

    The hits of a bank are those of the variant that uses this bank alone.
    """
    assert summary.formed is not None
    runs = {run.variant.name: run for run in played}
    skills, stats = [], own(summary, "bank_stat")
    for bank in summary.formed["banks"]:
        slots = sorted((r for r in own(summary, "skill") if r["bank"] == bank), key=_slot)
        hits, counted = runs[bank].retrievals(bank, len(slots))
        skills += [{**row, "hits": int(hits[row["slot"]])} for row in slots]
        label = {"seed": summary.seed, "bank": bank}
        stats += [{**label, "name": name, "value": float(n)} for name, n in counted.items()]
    return {"skill": skills, "bank_stat": stats}


def own(summary: SeedSummary, table: str) -> list[Row]:
    """Return the rows of a table of the skill summary; the fold's id comes from the manifest."""
    assert summary.formed is not None
    return [
        {**{name: value for name, value in row.items() if name != "fold_id"}, "seed": summary.seed}
        for row in summary.formed[table]
    ]


def _slot(row: Row) -> int:
    return int(row["slot"])
