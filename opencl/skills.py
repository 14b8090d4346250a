"""The skills of one fold and seed: from a policy file to bank files beside a summary.

`form_skills` is pure and picklable like `opencl.seed_training.train_seed`: it writes only its own
files. Stages, each of which ends before the next begins: collect, evaluate, choose on validation;
the test window is played by `opencl.fold_result`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from backtest import identity
from backtest.agent.bank import Bank
from backtest.agent.checkpoint import Policy, load_policy, save_policy
from backtest.agent.plan import never
from backtest.agent.result import StoppedError
from backtest.agent.skills.choice import Trial, best, entries
from backtest.agent.skills.finetune import budget, train_on
from backtest.data.session import sessions_per_year
from backtest.errors import StoreError
from backtest.evaluation.ablation import FINETUNE, NONE
from backtest.evaluation.ratios import sharpe
from backtest.lake import read_json, write_json
from opencl.collector import DeviceCollector
from opencl.devices import Device, select
from opencl.exchange import torch_device
from opencl.formation.actor import Actor, Ground
from opencl.formation.collection import collect
from opencl.formation.evaluation import evaluate, live_slots
from opencl.formation.rows import bank_rows, skill_rows
from opencl.formation.validation import (
    Run,
    random_snapshots,
    trial,
    try_banks,
    walk,
    walk_policies,
)
from opencl.rollout import PolicySkills, Rollout
from opencl.training import TrainSpec, fold_windows, plan_of, shape
from opencl.training_log import Log

STAGES = ("collect", "evaluate", "finetune", "choose")


def form_skills(spec: TrainSpec, stop: Callable[[], bool] = never, log: Log | None = None) -> Path:
    """Form and judge the skill banks of one seed of one fold; return its summary (JSON).

    The summary holds rows of skill and bank_stat, what validation said of every variant, and the
    trials it made; banks and the policy that was trained on lie beside it.

    Args:
        spec: whose skills; the policy must be trained.
        stop: asked between blocks; nothing is kept of a stopped run.
        log: receives a line a stage.

    Raises:
        StoreError: the policy is missing, damaged, or not the one that its summary describes.
        StoppedError: the stop flag was raised.
    """
    import torch

    torch.set_num_threads(1)
    device = select(spec.config.runtime.device)
    experiment = spec.experiment
    folder = experiment.lake.skills(
        experiment.study_id, spec.instrument, spec.fold_key, spec.fold_id
    )
    summary = folder / f"seed_{spec.seed}.json"
    trained = read_json(spec.folder / f"seed_{spec.seed}.json")
    row = trained["policy"]
    made_by = identity.digest(
        identity.canonical([trained["made_by"], row["weight_hash"], device.platform, device.name])
    )
    if _made(spec.lake, summary, made_by):
        return summary
    path = spec.lake / row["path"]
    policy = load_policy(path, network=spec.config.network, config_hash=experiment.study_id)
    if policy.weights.weight_hash != row["weight_hash"]:
        raise StoreError(
            f"{path}: weights {policy.weights.weight_hash[:12]}, its summary describes "
            f"{row['weight_hash'][:12]}; materialise asset policy of this partition again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    work = _Formation(spec, device, policy, stop, log)
    found = work.run(folder)
    write_json(
        summary,
        {
            "made_by": made_by,
            "weight_hash": row["weight_hash"],
            **found,
        },
    )
    return summary


def _made(lake: Path, summary: Path, made_by: str) -> bool:
    """Return whether the same policy left a summary before, and all files that it names."""
    if not summary.is_file():
        return False
    found = read_json(summary)
    if found.get("made_by") != made_by:
        return False
    paths = [*found["banks"].values(), *(entry["policy"] for entry in found["variants"])]
    return all((lake / path).is_file() for path in paths)


@dataclass
class _Formation:
    spec: TrainSpec
    device: Device
    policy: Policy
    stop: Callable[[], bool]
    log: Log | None
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, folder: Path) -> dict[str, Any]:
        """Run all stages, write banks and policy, return the summary's rest."""
        spec, config = self.spec, self.spec.config
        started = datetime.now(UTC)
        foundation, windows = fold_windows(spec, self.device)
        session = spec.experiment.bars(spec.instrument).session
        grounds = {
            name: Ground(
                Rollout(self.device, tape, state, shape(config)),
                state,
                session[tape.start : tape.stop],
            )
            for name, (tape, state) in windows.items()
        }
        actor = Actor.of(
            config,
            self.policy,
            spec.instrument,
            spec.fold_key,
            self.device,
            torch_device(self.device),
        )
        ground, validation = grounds["collection"], grounds["validation"]
        with self._stage("collect"):
            banks, collected = collect(actor, ground, actor.new_banks(), self._check)
        with self._stage("evaluate"):
            judged = evaluate(actor, ground, banks, self._check)
        rows = collected.gradient_rows + judged.gradient_rows
        updates, tuned = budget(rows, config.learner.batch), None
        if config.skills.finetune:
            with self._stage("finetune"):
                tuned = self._train_on(actor, ground, windows["collection"], foundation, updates)
        with self._stage("choose"):
            (reference,) = walk(actor, validation, [None])
            trials = try_banks(actor, validation, banks, reference)
            if tuned is not None:
                (run,) = walk_policies(actor, validation, [tuned.weights])
                trials.append(trial(actor, FINETUNE, {}, run, reference))
            noise = {
                name: self._noise(actor, validation, name, bank, trials, reference)
                for name, bank in banks.items()
            }
        paths = self._save(folder, banks, tuned)
        key = {"fold_id": spec.fold_id, "seed": spec.seed}
        figures = {
            name: {
                "coverage": collected.coverage[name],
                "live": float(len(live_slots(bank))),
                "delta": float(np.mean(judged.delta[name])) if judged.delta[name] else None,
                **noise[name],
            }
            for name, bank in banks.items()
        }
        return {
            "banks": {name: paths[name] for name in banks},
            "skill": [
                row
                for name, bank in banks.items()
                for row in skill_rows(key, name, bank, judged.influence[name])
            ],
            "bank_stat": [
                row
                for name, bank in banks.items()
                for row in bank_rows(key, name, bank, figures[name])
            ],
            "variants": entries(trials, list(banks), paths),
            "trials": self._trials(trials, validation, started),
            "budget": {
                "collect_rows": collected.rows,
                "collect_episodes": collected.episodes,
                "evaluate_rows": judged.steps,
                "gradient_rows": rows,
                "finetune_updates": updates if tuned is not None else 0,
                **{f"{name}_seconds": seconds for name, seconds in self.seconds.items()},
            },
        }

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Time a stage and say when it is done."""
        self._check()
        clock = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - clock
        if self.log is not None:
            share = (STAGES.index(name) + 1) / len(STAGES)
            self.log(f"seed {self.spec.seed} {name}: {self.seconds[name]:.1f} s", share)

    def _check(self) -> None:
        if self.stop():
            raise StoppedError(
                f"seed {self.spec.seed}: stopped while forming skills; nothing is saved, the next "
                "run forms them from the policy"
            )

    def _train_on(
        self, actor: Actor, ground: Ground, window: tuple[Any, Any], foundation: Any, updates: int
    ) -> Policy:
        settings = self.spec.config.learner
        plan = replace(plan_of(self.spec, *window, foundation, self.device), stop=self.stop)
        collector = DeviceCollector(
            ground.rollout, actor.key, settings.envs, settings.episode_steps, plan.device
        )
        return train_on(self.policy, plan, collector, updates, settings.epochs)

    def _noise(
        self,
        actor: Actor,
        validation: Ground,
        name: str,
        bank: Bank,
        trials: Sequence[Trial],
        reference: Run,
    ) -> dict[str, float | None]:
        """Return the mean gain of random directions at the bank's strength, and its error."""
        count = self.spec.config.skills.random_banks
        top = best([t for t in trials if t.variant == name])
        if not count or top is None:
            return {}
        snapshots = random_snapshots(actor, bank, top.alpha[name], count)
        sets = [PolicySkills(**{name: snapshot}) for snapshot in snapshots]
        runs = walk(actor, validation, sets)
        gains = [trial(actor, name, {}, run, reference).delta.value or 0.0 for run in runs]
        error = float(np.std(gains, ddof=1) / np.sqrt(count)) if count > 1 else None
        return {"random_delta": float(np.mean(gains)), "random_delta_error": error}

    def _save(
        self, folder: Path, banks: Mapping[str, Bank], tuned: Policy | None
    ) -> dict[str, str]:
        """Write banks and policies; return their paths on the lake by name."""
        lake, seed = self.spec.lake, self.spec.seed
        weight_hash = self.policy.weights.weight_hash
        paths = {NONE: (self.spec.folder / f"seed_{seed}.safetensors").relative_to(lake).as_posix()}
        for name, bank in banks.items():
            path = folder / f"{name}_{seed}.safetensors"
            bank.save(path, weight_hash)
            paths[name] = path.relative_to(lake).as_posix()
        if tuned is not None:
            path = folder / f"{FINETUNE}_{seed}.safetensors"
            save_policy(path, tuned)
            paths[FINETUNE] = path.relative_to(lake).as_posix()
        return paths

    def _trials(
        self, trials: Sequence[Trial], validation: Ground, started: datetime
    ) -> list[dict[str, Any]]:
        """Return a trial of the ledger for everything that validation was asked."""
        spec = self.spec
        sessions = np.unique(validation.session[1:])
        seconds = self.seconds["choose"] / max(len(trials), 1)
        year = sessions_per_year(spec.experiment.instrument(spec.instrument).calendar)
        found = []
        for one in trials:
            params = {"variant": one.variant, "alpha": dict(one.alpha)}
            identity_text = [spec.made_by(self.device), params]
            found.append(
                {
                    "trial_id": identity.digest(identity.canonical(identity_text)),
                    "study_id": spec.experiment.study_id,
                    "fold_id": spec.fold_id,
                    "kind": "ablation",
                    "params": params,
                    "seed": spec.seed,
                    "phase": None,
                    "objective": sharpe(one.returns, year),
                    "started": started.isoformat(),
                    "seconds": seconds,
                    "status": "complete",
                    "trial_return": [
                        {"session": int(day), "pnl": float(pnl)}
                        for day, pnl in zip(sessions, one.returns, strict=True)
                    ],
                }
            )
        return found
