"""One training run: one fold, one seed, from feature files to a policy file beside its summary.

`train_seed` is pure and picklable: it writes only its own two files, so a runner may call it in
any process. A run that was already made, on the same device, is not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

from backtest import identity, rng
from backtest.agent import train_fold
from backtest.agent.aux_verdict import figure_rows
from backtest.agent.checkpoint import Policy, save_policy
from backtest.agent.experience import Experience
from backtest.agent.foundation import (
    Foundation,
    bypass_mode,
    lay_foundation,
    needed,
    open_foundation,
)
from backtest.agent.plan import Plan, never, silent
from backtest.agent.result import Trained
from backtest.agent.schedule import round_epsilon
from backtest.config import Config
from backtest.data.session import sessions_per_year
from backtest.experiment import Experiment, FoldMarket
from backtest.lake import Lake, read_json, write_json
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceCollector, DeviceEvaluator
from opencl.devices import Device, select
from opencl.exchange import torch_device
from opencl.first_round import FirstRound, digest
from opencl.fold_rows import FoldRows, fold_rows
from opencl.policy_summary import curve_rows, policy_row, trial_returns, trial_row
from opencl.rollout import Rollout, Shape, collection_variant
from opencl.training_log import Log, progress


@dataclass(frozen=True)
class TrainSpec:
    """What to train; plain values only."""

    config: Config
    lake: Path
    instrument: str
    fold_key: str
    seed: int
    run_id: str

    @cached_property
    def experiment(self) -> Experiment:
        """The study on its lake."""
        return Experiment(self.config, Lake(self.lake))

    @cached_property
    def fold_id(self) -> str:
        """Identity of the fold, of every status."""
        fold = self.experiment.fold(self.instrument, self.fold_key)
        return self.experiment.fold_id(self.instrument, fold)

    @property
    def folder(self) -> Path:
        """Where the policies of the fold are."""
        return self.experiment.lake.policies(
            self.experiment.study_id, self.instrument, self.fold_key, self.fold_id
        )

    @property
    def stream(self) -> int:
        """What separates the random numbers of folds."""
        return rng.hash32(f"{self.instrument}|{self.fold_key}")

    def made_by(self, device: Device) -> str:
        """Return the identity of what this fold and seed make on a device."""
        variant = collection_variant(device, shape(self.config), self.config.runtime.precision)
        parts = [self.fold_id, self.seed, device.platform, device.name, variant]
        return identity.digest(identity.canonical(parts))


def shape(config: Config) -> Shape:
    """Return what rollout programs of this configuration are specialised to."""
    network, branches = config.network, config.learner.branches
    if network.kind == "mlp":
        return Shape(network.hidden, network.atoms, branches)
    slots = config.skills.bank.slots or network.scenarios
    return Shape(
        network.hidden,
        network.atoms,
        branches,
        kind="scenario",
        scenarios=network.scenarios,
        horizon=network.horizon,
        latent=network.latent,
        stack_size=network.stack_size,
        top_k=network.top_k,
        slots=slots if config.skills.banks else 0,
    )


def exploring_collection(spec: TrainSpec, device: Device) -> tuple[Experience, Tape]:
    """Collect the first round of a seed: untrained weights, every action at random.

    Reads the files of the train windows and no other. `train_seed` begins with the same round;
    its summary holds the `digest` of it as `first_round`.

    Returns:
        The experience, and the tape it was collected on.
    """
    from backtest.agent.training_state import begin

    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key, validation=False)
    foundation = _foundation(spec, rows, device)
    tape, state = rows.train(foundation)
    start = begin(plan_of(spec, tape, state, foundation, device))
    weights = start.learner.online.weights(start.learner.v_max)
    rollout = Rollout(device, tape, state, shape(spec.config))
    epsilon = round_epsilon(spec.config.learner, 0)
    return _collector(spec, device, rollout).collect(weights, 0, epsilon), tape


def train_seed(spec: TrainSpec, stop: Callable[[], bool] = never, log: Log | None = None) -> Path:
    """Train one seed of one fold and return the path of its summary (JSON).

    The summary holds the `policy` row, the `curve` rows, and the trial with its validation
    returns by session. The safetensors file lies beside it.

    Args:
        spec: what to train.
        stop: asked between blocks of updates; stopped runs resume on the same device.
        log: receives a line an epoch.

    Raises:
        DataError: the fold is skipped, or feature files are missing or of other bars.
    """
    import torch

    torch.set_num_threads(1)  # so that a result does not depend on the number of cores
    device = select(spec.config.runtime.device)
    spec.experiment.open_fold(spec.instrument, spec.fold_key)
    folder, made_by = spec.folder, spec.made_by(device)
    summary = folder / f"seed_{spec.seed}.json"
    path = folder / f"seed_{spec.seed}.safetensors"
    if summary.is_file() and path.is_file() and read_json(summary).get("made_by") == made_by:
        return summary
    started, clock = datetime.now(UTC), time.perf_counter()
    run = _prepare(spec, device)
    folder.mkdir(parents=True, exist_ok=True)
    plan = replace(
        run.plan,
        progress=progress(log, spec.seed) if log else silent,
        stop=stop,
        state_file=folder / f"seed_{spec.seed}.{made_by}.state",
    )
    collector = FirstRound(run.collector)
    trained = train_fold(plan, collector, run.evaluator)
    if trained.range_failed and log:
        log(f"seed {spec.seed}: more than 5 % of the mass lies on the edge atoms after widening", 1)
    policy = _policy(spec, device, run, trained)
    weight_hash = save_policy(path, policy)
    capital = spec.config.market.initial_capital
    validation = run.evaluator.session["validation"][1:]
    write_json(
        summary,
        {
            "made_by": made_by,
            "first_round": collector.digest or digest(exploring_collection(spec, device)[0]),
            "range_failed": trained.range_failed,
            "policy": policy_row(
                policy, trained, path.relative_to(spec.lake).as_posix(), weight_hash
            ),
            "curve": curve_rows(policy, trained),
            "aux_report": dict(run.foundation.report) if run.foundation else {},
            "aux_verdict": figure_rows(trained.curves),
            "trial": trial_row(policy, trained, made_by, started, time.perf_counter() - clock),
            "trial_return": trial_returns(trained, validation, capital),
        },
    )
    return summary


@dataclass(frozen=True)
class _Run:
    market: FoldMarket
    foundation: Foundation | None
    plan: Plan
    collector: DeviceCollector
    evaluator: DeviceEvaluator


def _prepare(spec: TrainSpec, device: Device) -> _Run:
    """Cut the fold's rows and put them on the device: train rows and validation rows apart."""
    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key)
    foundation = _foundation(spec, rows, device)
    train_tape, train_state = rows.train(foundation)
    validation_tape, validation_state = rows.validation(foundation)
    made = partial(Rollout, device, shape=shape(spec.config))
    train = made(train_tape, train_state)
    validation = made(validation_tape, validation_state)
    session = spec.experiment.bars(spec.instrument).session
    collector = _collector(spec, device, train, torch_device(device))
    return _Run(
        market=rows.market,
        foundation=foundation,
        plan=plan_of(spec, train_tape, train_state, foundation, device),
        collector=collector,
        evaluator=DeviceEvaluator(
            {"train": train, "validation": validation},
            {
                "train": session[train_tape.start : train_tape.stop],
                "validation": session[validation_tape.start : validation_tape.stop],
            },
            collector.key,
            sessions_per_year(rows.market.instrument.calendar),
            trades=spec.config.aux.enabled,
        ),
    )


def _foundation(spec: TrainSpec, rows: FoldRows, device: Device) -> Foundation | None:
    """Return what stage 0 left of this fold and seed, made here where nobody did before."""
    if not needed(spec.config):
        return None

    def lay() -> Foundation:
        train = rows.market.learning
        return lay_foundation(
            spec.config,
            rows.table.slice(train.start, train.stop),
            rows.train(None)[1],
            tick_size=rows.market.instrument.tick_size,
            seed=spec.seed,
            stream=spec.stream,
            device=torch_device(device),
        )

    path = spec.folder / f"foundation_{spec.seed}.safetensors"
    return open_foundation(path, spec.made_by(device), lay)


def _policy(spec: TrainSpec, device: Device, run: _Run, trained: Trained) -> Policy:
    """Return what is saved of a training run: its best epoch."""
    return Policy(
        state=trained.state_dict,
        network=spec.config.network,
        branches=spec.config.learner.branches,
        v_max=trained.v_max,
        center=run.market.scaler.center,
        scale=run.market.scaler.scale,
        base=run.market.base,
        seed=spec.seed,
        config_hash=spec.experiment.study_id,
        epoch=trained.best_epoch,
        update=trained.best.update,
        steps=trained.steps,
        labels={
            "instrument": spec.instrument,
            "fold_key": spec.fold_key,
            "fold_id": spec.fold_id,
            "run_id": spec.run_id,
            "device": device.name,
        },
        aux=run.foundation.arrays if run.foundation else {},
    )


def fold_windows(
    spec: TrainSpec, device: Device
) -> tuple[Foundation | None, dict[str, tuple[Tape, Array]]]:
    """Return a fold's foundation, and its collection and validation windows by name."""
    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key)
    foundation = _foundation(spec, rows, device)
    windows = {
        "collection": rows.collected(foundation),
        "validation": rows.validation(foundation),
    }
    return foundation, windows


def plan_of(
    spec: TrainSpec, tape: Tape, state: Array, foundation: Foundation | None, device: Device
) -> Plan:
    """Return the plan that trains a seed on a tape and its states float32[n, 115]."""
    return Plan(
        bar_part=state,
        first_bar=tape.start,
        learner=spec.config.learner,
        network=spec.config.network,
        seed=spec.seed,
        stream=spec.stream,
        forecaster=foundation.forecaster if foundation else None,
        bypass=bypass_mode(spec.config.aux),
        config_hash=spec.experiment.study_id,
        device=torch_device(device),
    )


def _collector(
    spec: TrainSpec, device: Device, train: Rollout, learner: str = "cpu"
) -> DeviceCollector:
    """Return the collector; its rollout alone may play in bf16. learner: its torch device."""
    key, settings = rng.key(spec.seed, spec.instrument, spec.fold_key), spec.config.learner
    variant = collection_variant(device, train.made.shape, spec.config.runtime.precision)
    rollout = train.as_variant(variant)
    return DeviceCollector(rollout, key, settings.envs, settings.episode_steps, learner)
