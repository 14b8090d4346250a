"""The variants of a trained policy: what earlier stages left of a seed, loaded.

`none` is the policy itself, `task`, `step` and `both` add frozen skill banks to it, `finetune` is
the policy trained on. Banks belong to the weights they were collected on; others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from backtest.agent.bank import Bank, Snapshot
from backtest.agent.checkpoint import Policy, load_policy
from backtest.errors import DataError, StoreError
from backtest.evaluation.ablation import NONE
from backtest.experiment import Experiment
from backtest.lake import read_json
from opencl.formation.actor import BANKS
from opencl.rollout import PolicySkills

# The one row of a study without banks.
ALONE: Mapping[str, Any] = {
    "variant": NONE,
    "alpha": {},
    "adopted": False,
    "chosen": True,
    "validation_delta": None,
}


@dataclass(frozen=True)
class SeedSummary:
    """What the assets policy and skill_bank left of one seed.

    Attributes:
        trained: summary of `opencl.seed_training.train_seed`.
        formed: summary of `opencl.skills.form_skills`; None when the study has no banks.
    """

    trained: Mapping[str, Any]
    formed: Mapping[str, Any] | None

    @property
    def seed(self) -> int:
        """The training seed."""
        return int(self.trained["policy"]["seed"])

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        """What validation said of each variant."""
        return self.formed["variants"] if self.formed is not None else (ALONE,)


@dataclass(frozen=True)
class Variant:
    """A policy with the banks that it uses, ready to play."""

    entry: Mapping[str, Any]  # what validation said
    policy: Policy
    skills: PolicySkills | None
    banks: Mapping[str, Bank]  # those that it uses, by name

    @property
    def name(self) -> str:
        """Such as none or step."""
        return str(self.entry["variant"])


def seed_summaries(
    experiment: Experiment, instrument: str, fold_key: str, fold_id: str
) -> list[SeedSummary]:
    """Read what was left of all seeds of a fold.

    Raises:
        DataError: a seed was not trained, or its banks were not formed.
        StoreError: its banks were formed on other weights.
    """
    place = (experiment.study_id, instrument, fold_key, fold_id)
    policies, skills = experiment.lake.policies(*place), experiment.lake.skills(*place)
    found = []
    for seed in experiment.config.study.seeds:
        trained, formed = read_summary(policies, seed, "policy"), None
        if experiment.config.skills.banks:
            formed = read_summary(skills, seed, "skill_bank")
            check_weights(skills, trained, formed)
        found.append(SeedSummary(trained, formed))
    return found


def read_summary(folder: Path, seed: int, asset: str) -> dict[str, Any]:
    """Read what an asset left of one seed.

    Raises:
        DataError: nothing.
    """
    path = folder / f"seed_{seed}.json"
    if not path.is_file():
        raise DataError(
            f"{path}: no {asset.replace('_', ' ')} of seed {seed}; materialise asset {asset} of "
            "this partition first"
        )
    summary: dict[str, Any] = read_json(path)
    return summary


def check_weights(folder: Path, trained: Mapping[str, Any], formed: Mapping[str, Any]) -> None:
    """Refuse what was formed on other weights than the policy's.

    Raises:
        StoreError: names both.
    """
    policy = trained["policy"]
    if formed["weight_hash"] != policy["weight_hash"]:
        raise StoreError(
            f"{folder}: skill banks of seed {policy['seed']} were formed on the weights "
            f"{formed['weight_hash'][:12]}, the policy has {policy['weight_hash'][:12]}; "
            "materialise asset skill_bank of this partition again"
        )


def load_variants(experiment: Experiment, summary: SeedSummary) -> list[Variant]:
    """Load every variant of a seed, `none` first.

    Raises:
        StoreError: a file is missing, damaged, or a bank is of other weights.
    """
    root, trained = experiment.lake.root, summary.trained["policy"]

    def policy(path: str) -> Policy:
        return load_policy(
            root / path, network=experiment.config.network, config_hash=experiment.study_id
        )

    base = policy(trained["path"])
    if summary.formed is None:
        return [Variant(ALONE, base, None, {})]
    weight_hash = base.weights.weight_hash
    banks = {
        name: Bank.load(root / path, weight_hash) for name, path in summary.formed["banks"].items()
    }

    @cache
    def snapshot(bank: str, alpha: float | None) -> Snapshot | None:
        # one object for all variants that share it: the rollout searches it once
        return None if alpha is None else banks[bank].snapshot(alpha)

    variants = []
    for entry in summary.entries:
        own = entry["policy"] not in (None, trained["path"])
        task, step = (snapshot(name, entry["alpha"].get(name)) for name in BANKS)
        skills = None if task is None and step is None else PolicySkills(task, step)
        used = {name: bank for name, bank in banks.items() if entry["alpha"].get(name) is not None}
        variants.append(Variant(entry, policy(entry["policy"]) if own else base, skills, used))
    variants.sort(key=lambda variant: variant.name != NONE)
    if not variants or variants[0].name != NONE:
        raise StoreError(
            f"seed {summary.seed}: its summary of skill banks has no variant none; materialise "
            "asset skill_bank of this partition again"
        )
    return variants
