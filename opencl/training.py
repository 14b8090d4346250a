"""One training run: one fold, one seed, from feature files to a policy file beside its summary.

`train_seed` is pure and picklable: it writes only its own two files, so a runner may call it in
any process. A run that was already made, on the same device, is not made again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backtest import identity, rng
from backtest.agent import train_fold
from backtest.agent.checkpoint import Policy, save_policy
from backtest.agent.experience import Experience
from backtest.agent.plan import Plan, never, silent
from backtest.agent.schedule import round_epsilon
from backtest.agent.weights import PolicyWeights
from backtest.config import Config
from backtest.data.session import sessions_per_year
from backtest.errors import DataError
from backtest.experiment import Experiment, FoldMarket
from backtest.features.table import FeatureTable
from backtest.lake import Lake, read_json, write_json
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceCollector, DeviceEvaluator
from opencl.devices import Device, select
from opencl.rollout import Rollout, Shape

Log = Callable[[str, float], None]  # a line for people, the fraction of the training that is done


@dataclass(frozen=True)
class TrainSpec:
    """What to train; plain values only."""

    config: Config
    lake: Path
    instrument: str
    fold_key: str
    seed: int
    run_id: str

    @property
    def experiment(self) -> Experiment:
        """The study on its lake."""
        return Experiment(self.config, Lake(self.lake))


def shape(config: Config) -> Shape:
    """Return what rollout programs of this configuration are specialised to."""
    network = config.network
    return Shape(network.hidden, network.atoms, config.learner.branches)


def exploring_collection(spec: TrainSpec, device: Device) -> tuple[Experience, Tape]:
    """Collect the first round of a seed: untrained weights, every action at random.

    Reads the files of the train windows and no other. `train_seed` begins with the same round;
    its summary holds the `digest` of it as `first_round`.

    Returns:
        The experience, and the tape it was collected on.
    """
    from backtest.agent.training_state import begin

    keys = _keys(spec)[: spec.config.folds.train]
    market, table = _market(spec, keys)
    tape, state = market.train(table)
    start = begin(_plan(spec, tape, state, device))
    weights = start.learner.online.weights(start.learner.v_max)
    rollout = Rollout(device, tape, state, shape(spec.config))
    epsilon = round_epsilon(spec.config.learner, 0)
    return _collector(spec, rollout).collect(weights, 0, epsilon), tape


def digest(experience: Experience) -> str:
    """Return the SHA-256 (hex) of all decisions; rows after an end do not count."""
    alive = experience.alive
    total = hashlib.sha256(experience.start.tobytes())
    arrays = (
        alive,
        experience.action[alive],
        experience.reward[alive],
        experience.end[alive],
        experience.portfolio[:-1][alive],
        experience.portfolio[1:][alive],
        experience.equity[alive],
    )
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()


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
    experiment = spec.experiment
    fold = experiment.open_fold(spec.instrument, spec.fold_key)
    fold_id = experiment.fold_id(spec.instrument, fold)
    folder = experiment.lake.policies(experiment.study_id, spec.instrument, spec.fold_key, fold_id)
    summary = folder / f"seed_{spec.seed}.json"
    path = folder / f"seed_{spec.seed}.safetensors"
    made_by = identity.digest(
        identity.canonical([fold_id, spec.seed, device.platform, device.name])
    )
    if summary.is_file() and path.is_file() and read_json(summary).get("made_by") == made_by:
        return summary
    started, clock = datetime.now(UTC), time.perf_counter()
    run = _prepare(spec, device)
    folder.mkdir(parents=True, exist_ok=True)
    plan = replace(
        run.plan,
        progress=_progress(log, spec) if log else silent,
        stop=stop,
        state_file=folder / f"seed_{spec.seed}.{made_by}.state",
    )
    collector = _FirstRound(run.collector)
    trained = train_fold(plan, collector, run.evaluator)
    if trained.range_failed and log:
        log(f"seed {spec.seed}: more than 5 % of the mass lies on the edge atoms after widening", 1)
    labels = {
        "instrument": spec.instrument,
        "fold_key": spec.fold_key,
        "fold_id": fold_id,
        "run_id": spec.run_id,
        "device": device.name,
    }
    weight_hash = save_policy(
        path,
        Policy(
            state=trained.state_dict,
            network=spec.config.network,
            branches=spec.config.learner.branches,
            v_max=trained.v_max,
            center=run.market.scaler.center,
            scale=run.market.scaler.scale,
            base=run.market.base,
            seed=spec.seed,
            config_hash=experiment.study_id,
            epoch=trained.best_epoch,
            update=trained.best.update,
            steps=trained.steps,
            labels=labels,
        ),
    )
    network = spec.config.network
    key = {"fold_id": fold_id, "seed": spec.seed}
    policy = {
        **key,
        "variant": "none",
        "run_id": spec.run_id,
        "network": f"{network.kind} {'-'.join(map(str, network.hidden))} x {network.atoms}",
        "path": path.relative_to(spec.lake).as_posix(),
        "weight_hash": weight_hash,
        "steps": trained.steps,
        "updates": trained.updates,
        "best_epoch": trained.best_epoch,
        "validation_sharpe": trained.best.validation.sharpe,
        "train_sharpe": trained.best.train.sharpe,
        "v_min": trained.v_min,
        "v_max": trained.v_max,
        "edge_mass": trained.edge_mass,
        "device": device.name,
    }
    sessions = np.unique(run.evaluator.session["validation"][1:])
    trial = {
        "trial_id": made_by,
        "study_id": experiment.study_id,
        "fold_id": fold_id,
        "kind": "train",
        "params": {},
        "seed": spec.seed,
        "phase": None,
        "objective": trained.best.validation.sharpe,
        "started": started.isoformat(),
        "seconds": time.perf_counter() - clock,
        "status": "complete",
    }
    returns = trained.best.validation.returns * spec.config.market.initial_capital
    if len(returns) != len(sessions):
        raise DataError(f"{len(returns)} validation returns for {len(sessions)} sessions")
    write_json(
        summary,
        {
            "made_by": made_by,
            "first_round": collector.digest or digest(exploring_collection(spec, device)[0]),
            "range_failed": trained.range_failed,
            "policy": policy,
            "curve": [{**key, **row} for row in trained.curves],
            "trial": trial,
            "trial_return": [
                {"session": int(day), "pnl": float(pnl)}
                for day, pnl in zip(sessions, returns, strict=True)
            ],
        },
    )
    return summary


@dataclass(frozen=True)
class _Run:
    market: FoldMarket
    plan: Plan
    collector: DeviceCollector
    evaluator: DeviceEvaluator


def _prepare(spec: TrainSpec, device: Device) -> _Run:
    """Cut the fold's rows and put them on the device: train rows and validation rows apart."""
    market, table = _market(spec, _keys(spec))
    train_tape, train_state = market.train(table)
    validation_tape, validation_state = market.validation(table)
    made = partial(Rollout, device, shape=shape(spec.config))
    train = made(train_tape, train_state)
    validation = made(validation_tape, validation_state)
    session = spec.experiment.bars(spec.instrument).session
    collector = _collector(spec, train)
    return _Run(
        market=market,
        plan=_plan(spec, train_tape, train_state, device),
        collector=collector,
        evaluator=DeviceEvaluator(
            {"train": train, "validation": validation},
            {
                "train": session[train_tape.start : train_tape.stop],
                "validation": session[validation_tape.start : validation_tape.stop],
            },
            collector.key,
            sessions_per_year(market.instrument.calendar),
        ),
    )


def _keys(spec: TrainSpec) -> list[str]:
    """Return the fold's train windows, then its validation windows."""
    return spec.experiment.history_keys(spec.instrument, spec.fold_key)


def _market(spec: TrainSpec, keys: Sequence[str]) -> tuple[FoldMarket, FeatureTable]:
    """Read feature windows and fit what the fold fits on its train rows."""
    experiment, name = spec.experiment, spec.instrument
    table = experiment.read_windows(name, keys)
    fold = experiment.fold(name, spec.fold_key)
    return FoldMarket.fit(spec.config, experiment.instrument(name), fold, table), table


def _plan(spec: TrainSpec, tape: Tape, state: Array, device: Device) -> Plan:
    return Plan(
        bar_part=state,
        first_bar=tape.start,
        learner=spec.config.learner,
        network=spec.config.network,
        seed=spec.seed,
        stream=rng.hash32(f"{spec.instrument}|{spec.fold_key}"),
        config_hash=spec.experiment.study_id,
        device=torch_device(device),
    )


def _collector(spec: TrainSpec, train: Rollout) -> DeviceCollector:
    key = rng.key(spec.seed, spec.instrument, spec.fold_key)
    return DeviceCollector(train, key, spec.config.learner.envs, spec.config.learner.episode_steps)


@dataclass
class _FirstRound:
    """A collector that keeps the digest of its first round; None when a resumed run had it."""

    collector: DeviceCollector
    digest: str | None = None

    def collect(self, weights: PolicyWeights, round: int, epsilon: float) -> Experience:
        experience = self.collector.collect(weights, round, epsilon)
        if round == 0:
            self.digest = digest(experience)
        return experience


def torch_device(device: Device) -> str:
    """Return where torch trains beside an OpenCL device: on its GPU if torch can, else the CPU."""
    import torch

    return "cuda" if device.nvidia and torch.cuda.is_available() else "cpu"


def _progress(log: Log, spec: TrainSpec) -> Callable[[int, int, Any], None]:
    """Return a reporter that writes one line an epoch."""
    clock = time.perf_counter()

    def report(done: int, total: int, row: Any) -> None:
        if row is None:
            return
        seconds = time.perf_counter() - clock
        left = seconds / done * (total - done) if done else float("nan")
        log(
            f"seed {spec.seed} epoch {row['epoch']}: loss {row['loss']:.3f}, validation Sharpe "
            f"{_shown(row['validation_sharpe'])}, {row['steps_per_s']:,.0f} steps/s, "
            f"{row['updates_per_s']:,.0f} updates/s, {left:.0f} s left",
            done / total,
        )

    return report


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
