"""The variants of a trained policy: what earlier stages left of a seed, loaded and played.

`none` is the policy itself, `task`, `step` and `both` add frozen skill banks to it, `finetune` is
the policy trained on. Banks belong to the weights they were collected on; others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from backtest.agent.bank import ABSTAIN, MISS, Bank, Snapshot
from backtest.agent.checkpoint import Policy, load_policy
from backtest.errors import DataError, StoreError
from backtest.evaluation.ablation import NONE, Outcome
from backtest.experiment import Experiment
from backtest.lake import read_json
from backtest.market.layout import Array, End
from opencl.collector import greedy
from opencl.formation.actor import BANKS, Actor
from opencl.out_of_sample import Episode, OutOfSample
from opencl.rollout import PolicySkills, Rollout
from opencl.training import shape

NOTHING = np.zeros(0, np.int8)
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
        trained: summary of `opencl.training.train_seed`.
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


@dataclass(frozen=True)
class Played:
    """A variant in the test window.

    Attributes:
        variant: what was played.
        episode: its account and metrics.
        action: uint8[n, 4].
        slots: int8[n, 2], task and step: a slot, `MISS` or `ABSTAIN`; None without banks.
    """

    variant: Variant
    episode: Episode
    action: Array
    slots: Array | None

    @property
    def outcome(self) -> Outcome:
        """What the ablation compares."""
        found = self.episode
        return Outcome(self.action, found.trace["end"], found.account.pnl, found.metrics["sharpe"])

    def retrievals(self, bank: str, slots: int) -> tuple[Array, dict[str, int]]:
        """Return how often each slot of a bank was retrieved, and what every search ended in.

        Args:
            bank: task or step.
            slots: of the bank.
        """
        alive = self.episode.trace["end"] != End.DEAD
        # nothing is searched without banks
        found = self.slots[alive, BANKS.index(bank)] if self.slots is not None else NOTHING
        hits = np.bincount(found[found >= 0], minlength=slots)
        return hits, {
            "test_hits": int(hits.sum()),
            "test_abstentions": int((found == ABSTAIN).sum()),
            "test_misses": int((found == MISS).sum()),
        }


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


def play(window: OutOfSample, variants: Sequence[Variant]) -> list[Played]:
    """Play the variants of one seed through the test window.

    Banks are frozen (INFERENCE), or with `skills.online` copies of them follow the window.
    """
    online = window.config.skills.online
    alike = [variant for variant in variants if not (online and variant.banks)]
    found = {run.variant.name: run for run in play_frozen(window, alike)}
    return [found.get(v.name) or play_calibrated(window, v) for v in variants]


def play_frozen(window: OutOfSample, variants: Sequence[Variant]) -> list[Played]:
    """Play variants in one launch; the kernel reads snapshots of their banks."""
    tape, state = window.seen_by(variants[0].policy)
    rollout = Rollout(window.device, tape, state, shape(window.config))
    start = np.full((len(variants), 1), window.first)
    skills = [variant.skills for variant in variants]
    # variants of one policy share one upload and its tables
    weights = {id(variant.policy): variant.policy.weights for variant in variants}
    out = greedy(
        rollout,
        [weights[id(variant.policy)] for variant in variants],
        start,
        window.steps,
        np.repeat(window.key[None], len(variants), axis=0),
        trace=True,
        skills=skills,
        slots=any(skills),
    )
    assert out.trace is not None
    return [
        Played(
            variant,
            window.episode(out.trace[:, i], out.action[:, i, 2]),
            out.action[:, i],
            None if variant.skills is None or out.slots is None else out.slots[:, i],
        )
        for i, variant in enumerate(variants)
    ]


def play_calibrated(window: OutOfSample, variant: Variant) -> Played:
    """Play one variant bar by bar while copies of its banks turn their directions (ONLINE)."""
    import torch

    from backtest.agent.skills.online import play_online

    torch.set_num_threads(1)  # so that a result does not depend on the number of cores
    config, fold = window.config, window.market.fold
    tape, state = window.seen_by(variant.policy)
    actor = Actor.of(config, variant.policy, window.instrument, fold.key, window.device)
    alpha = {name: variant.entry["alpha"][name] for name in variant.banks}
    out = play_online(
        actor.network, variant.banks, alpha, tape, state, config.learner, config.skills.bank
    )
    return Played(variant, window.episode(out.trace, out.action[:, 2]), out.action, out.slots)
