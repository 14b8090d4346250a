"""Training runs: one fold, its seeds, from feature files to policy files beside their summaries.

`train_seeds` is pure: it writes only its seeds' own files, so a runner may call it in any process.
A run that was already made, on the same device, is not made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from backtest.agent.aux_verdict import figure_rows
from backtest.agent.checkpoint import Policy, save_policy
from backtest.agent.foundation import Foundation
from backtest.agent.plan import Plan, never, silent
from backtest.agent.result import Trained
from backtest.data.session import sessions_per_year
from backtest.experiment import FoldMarket
from backtest.lake import read_json, write_json
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceEvaluator
from opencl.devices import Device, select
from opencl.exchange import torch_device
from opencl.first_round import FirstRound, digest
from opencl.fold_rows import fold_rows
from opencl.joint_evaluator import JointEvaluator
from opencl.memory import Planned
from opencl.policy_summary import curve_rows, policy_row, trial_returns, trial_row
from opencl.rollout import Rollout
from opencl.training import (
    TrainSpec,
    collector_of,
    exploring_collection,
    foundation_of,
    plan_of,
    shape,
)
from opencl.training_log import Log, progress
from opencl.training_memory import training_memory

SHARE = 2  # of a device's memory, one part is for runs that train side by side


def train_seed(spec: TrainSpec, stop: Callable[[], bool] = never, log: Log | None = None) -> Path:
    """Train one seed of one fold; see `train_seeds`."""
    (summary,) = train_seeds([spec], stop, [log])
    return summary


def train_seeds(
    specs: Sequence[TrainSpec],
    stop: Callable[[], bool] = never,
    logs: Sequence[Log | None] | None = None,
) -> list[Path]:
    """Train seeds of one fold side by side and return the paths of their summaries (JSON).

    A summary holds the `policy` row, the `curve` rows, and the trial with its validation returns by
    session. The safetensors file lies beside it. What a seed learns does not depend on the others;
    as many as the device has room for are trained together.

    Args:
        specs: what to train, of one study, instrument and fold.
        stop: asked between blocks of updates; stopped runs resume on the same device.
        logs: receive a line an epoch, one for each seed.

    Raises:
        DataError: the fold is skipped, or feature files are missing or of other bars.
        DeviceError: the device has no room for what training is going to need.
    """
    import torch

    from backtest.agent.train import train_together, training

    torch.set_num_threads(1)  # so that a result does not depend on the number of cores
    first = specs[0]
    device = select(first.config.runtime.device)
    first.experiment.open_fold(first.instrument, first.fold_key)
    todo = [
        (spec, log)
        for spec, log in zip(specs, logs or [None] * len(specs), strict=True)
        if not _made(spec, device)
    ]
    lay_foundations([spec for spec, _ in todo], device)
    while todo:
        runs = [_prepare(*todo.pop(0), device, stop)]
        room = device.global_memory // SHARE // runs[0].planned.total
        while todo and len(runs) < room:
            runs.append(_prepare(*todo.pop(0), device, stop))
        evaluators = [run.evaluator for run in runs]
        seen = [run.validation for run in runs]
        joint = JointEvaluator(device, shape(first.config), evaluators, seen)
        trained = train_together(
            [training(run.plan, run.collector) for run in runs], joint.evaluate
        )
        for run, result in zip(runs, trained, strict=True):
            _write(run, result, device)
    return [_summary(spec) for spec in specs]


def lay_foundations(specs: Sequence[TrainSpec], device: Device) -> None:
    """Lay the foundations of seeds of one fold, each on a core of its own: files that runs find."""
    import torch

    if not specs:
        return
    rows = fold_rows(specs[0].experiment, specs[0].instrument, specs[0].fold_key)
    rows.train(None)  # made once, before anyone needs it
    cores = min(len(specs), os.cpu_count() or 1)
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(lambda spec: foundation_of(spec, rows, device), specs))


def _summary(spec: TrainSpec) -> Path:
    return spec.folder / f"seed_{spec.seed}.json"


def _made(spec: TrainSpec, device: Device) -> bool:
    """Return whether this seed was trained before, on this device."""
    summary = _summary(spec)
    policy = summary.with_suffix(".safetensors")
    if not (summary.is_file() and policy.is_file()):
        return False
    return bool(read_json(summary).get("made_by") == spec.made_by(device))


@dataclass(frozen=True)
class _Run:
    """One seed, ready to train."""

    spec: TrainSpec
    log: Log | None
    started: datetime
    clock: float
    market: FoldMarket
    foundation: Foundation | None
    planned: Planned
    validation: tuple[Tape, Array]
    plan: Plan
    collector: FirstRound
    evaluator: DeviceEvaluator


def _prepare(spec: TrainSpec, log: Log | None, device: Device, stop: Callable[[], bool]) -> _Run:
    """Cut the fold's rows and put them on the device: train rows and validation rows apart.

    Raises:
        DeviceError: the device has no room for what training is going to need.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    rows = fold_rows(spec.experiment, spec.instrument, spec.fold_key)
    foundation = foundation_of(spec, rows, device)
    train_tape, train_state = rows.train(foundation)
    validation_tape, validation_state = rows.validation(foundation)
    planned = training_memory(spec.config, device, len(train_state), len(validation_state))
    planned.check(
        device, "use fewer learner.replay_rows or learner.envs, or a shorter train window"
    )
    if log:
        log(f"seed {spec.seed} plans {planned}", 0.0)
    train = Rollout(device, train_tape, train_state, shape(spec.config))
    session = spec.experiment.bars(spec.instrument).session
    collector = collector_of(spec, device, train, torch_device(device))
    spec.folder.mkdir(parents=True, exist_ok=True)
    plan = replace(
        plan_of(spec, train_tape, train_state, foundation, device),
        progress=progress(log, spec.seed) if log else silent,
        stop=stop,
        state_file=spec.folder / f"seed_{spec.seed}.{spec.made_by(device)}.state",
    )
    return _Run(
        spec=spec,
        log=log,
        started=started,
        clock=clock,
        market=rows.market,
        foundation=foundation,
        planned=planned,
        validation=(validation_tape, validation_state),
        plan=plan,
        collector=FirstRound(collector),
        evaluator=DeviceEvaluator(
            {"train": train},  # the validation windows of all seeds are played together
            {
                "train": session[train_tape.start : train_tape.stop],
                "validation": session[validation_tape.start : validation_tape.stop],
            },
            collector.key,
            sessions_per_year(rows.market.instrument.calendar),
            trades=spec.config.aux.enabled,
        ),
    )


def _write(run: _Run, trained: Trained, device: Device) -> None:
    """Write a policy and its summary."""
    spec, made_by = run.spec, run.spec.made_by(device)
    if trained.range_failed and run.log:
        run.log(
            f"seed {spec.seed}: more than 5 % of the mass lies on the edge atoms after widening", 1
        )
    summary = _summary(spec)
    path = summary.with_suffix(".safetensors")
    policy = _policy(spec, device, run, trained)
    weight_hash = save_policy(path, policy)
    capital = spec.config.market.initial_capital
    session = run.evaluator.session["validation"][1:]
    first_round = run.collector.digest or digest(exploring_collection(spec, device)[0])
    seconds = time.perf_counter() - run.clock
    write_json(
        summary,
        {
            "made_by": made_by,
            "first_round": first_round,
            "range_failed": trained.range_failed,
            "policy": policy_row(
                policy, trained, path.relative_to(spec.lake).as_posix(), weight_hash
            ),
            "curve": curve_rows(policy, trained),
            "aux_report": dict(run.foundation.report) if run.foundation else {},
            "aux_verdict": figure_rows(trained.curves),
            "trial": trial_row(policy, trained, made_by, run.started, seconds),
            "trial_return": trial_returns(trained, session, capital),
        },
    )


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
