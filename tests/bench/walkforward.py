"""A whole walk-forward on synthetic bars, and where its time goes.

Bars, features, folds, stage 0, collection, learning, evaluation, Parquet and DuckDB, by the same
functions that the assets call; folds follow one another in this process, seeds train side by side.

    python -m tests.bench.walkforward --bars 1000000 --folds 10 --seeds 1 --share 0.1

`--share` is that of the production budget (spec: 4,096 environments, at least 50 M steps and 20,000
updates of 4,096 a fold and seed); what was run is printed, nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from backtest import walk_forward
from backtest.agent import replay, train
from backtest.config import Config, parse
from backtest.data.ingest import ingest
from backtest.evaluation import intervals
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json
from backtest.market.layout import Array
from opencl import collector, fold_result, joint_evaluator, seed_training
from opencl.devices import Device, select
from opencl.training import TrainSpec
from tests.bench.rows import Row

NAME = "BENCH"
ENVS, EPISODE, BATCH = 4096, 512, 4096
UPDATES, EPOCHS = 20_000, 24  # production: 24 * 4,096 * 512 = 50.3 M steps
# bars, folds, seeds and share of the budget
SIZES = {"gpu": (1_000_000, 10, 1, 0.1), "cpu": (90_000, 2, 1, 0.002)}
QUICK = (90_000, 1, 1, 0.0005)
PRODUCTION = (1_000_000, 10, 10, 1.0)  # what the goal is for


@dataclass
class Clock:
    """Seconds by phase; a phase within another counts for itself alone."""

    device: Device
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        begin = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
            self._finish()
        finally:
            spent = time.perf_counter() - begin
            own = spent - self._inner.pop()
            if self._inner:
                self._inner[-1] += spent
            self.seconds[name] = self.seconds.get(name, 0.0) + own
            self.calls[name] = self.calls.get(name, 0) + 1

    def timed(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is counted as a phase."""

        @wraps(real)
        def counted(*given: Any, **named: Any) -> Any:
            with self.phase(name):
                return real(*given, **named)

        return counted

    def _finish(self) -> None:
        if self.device.nvidia:
            import torch

            torch.cuda.synchronize()


# Who does the work of each phase: the function's home, its name.
PHASES = {
    "stage 0": (seed_training, "lay_foundations"),
    "states and upload": (seed_training, "_prepare"),
    "collection": (collector.DeviceCollector, "collect"),
    "insertion": (replay.Replay, "insert"),
    "updates": (train, "_updates"),
    "train windows": (collector.DeviceEvaluator, "evaluate"),
    "validation windows": (joint_evaluator.JointEvaluator, "evaluate"),
    "test windows": (fold_result, "play"),
    "results": (fold_result, "_result"),
}


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    sizes = QUICK if quick else SIZES["gpu" if device.kind == "gpu" else "cpu"]
    return walk(device, *sizes)


def walk(
    device: Device, bars: int, folds: int, seeds: int, share: float, kind: str = "mlp"
) -> list[Row]:
    """Run one walk-forward and return a row a phase.

    Args:
        device: of everything.
        bars: of one minute, around the clock; months are windows: 8 train, 1 validates.
        folds: the first so many.
        seeds: of each.
        share: of the production budget; environments and batch stay, rounds and updates shrink.
        kind: of the network.
    """
    config = settings(device, bars, seeds, share, kind)
    clock = Clock(device)
    begin = time.perf_counter()
    with TemporaryDirectory() as folder, ExitStack() as patches:
        for name, (home, function) in PHASES.items():
            real = getattr(home, function)
            if function == "play":  # a generator works while it is read
                real = _listed(real)
            patches.enter_context(patch.object(home, function, clock.timed(name, real)))
        if not (arch := find_spec("arch")):
            patches.enter_context(patch.object(intervals, "redrawn", _same))
        found, summaries = _study(Path(folder), config, folds, clock)
    whole = time.perf_counter() - begin
    steps = sum(s["policy"]["steps"] for s in summaries)
    updates = sum(s["curve"][-1]["updates"] for s in summaries)
    budget = config.learner
    trials = found * seeds
    done = steps / trials / (ENVS * EPISODE * EPOCHS)
    learned = updates * budget.batch / trials / (UPDATES * BATCH)
    what = (
        f"{bars:,} bars, {found} folds x {seeds} seeds, {kind}, {budget.envs:,} envs x "
        f"{budget.episode_steps} steps x {budget.epochs} rounds and {budget.updates:,} updates x "
        f"{budget.batch:,} each: {done:.2%} of the production budget's steps, {learned:.2%} of its "
        f"updates{'' if arch else '; no bootstrap, for arch is missing'}"
    )
    rows = [
        Row(
            "walk-forward",
            whole,
            "s",
            f"{what}; {steps:,} steps, {updates:,} updates in all",
            goal="walkforward" if (bars, found, seeds, share) == PRODUCTION else "",
        )
    ]
    counted = sorted(clock.seconds.items(), key=lambda phase: -phase[1])
    rows += [
        Row(
            f"walk-forward, {name}",
            seconds,
            "s",
            f"{seconds / whole:.1%}, {clock.calls[name]:,} times",
        )
        for name, seconds in counted
    ]
    rest = whole - sum(clock.seconds.values())
    return [*rows, Row("walk-forward, the rest", rest, "s", f"{rest / whole:.1%}")]


def settings(device: Device, bars: int, seeds: int, share: float, kind: str) -> Config:
    """Return the configuration of a share of the production budget."""
    # rounds shrink, so that collection, updates and validation keep their proportions
    epochs = max(2, round(EPOCHS * share))
    return parse(
        {
            "study": {"name": "bench", "instruments": [NAME], "seeds": list(range(seeds))},
            "instruments": {
                NAME: {
                    "source": "synthetic",
                    "synthetic": {"bars": bars, "phi": 0.1},
                    "bar": "1min",
                    "point_value": 50.0,
                    "tick_size": 0.25,
                    "commission": 2.0,
                    "half_spread": 0.125,
                }
            },
            "folds": {"cron": "0 0 1 * *", "train": 8, "validation": 1}
            if bars >= 500_000
            else {"cron": "0 0 * * 1", "train": 4, "validation": 1},
            "network": {"kind": kind, "hidden": [128, 128], "atoms": 51},
            "learner": {
                "envs": ENVS if device.kind == "gpu" else ENVS // 16,
                "episode_steps": EPISODE if device.kind == "gpu" else EPISODE // 2,
                "batch": BATCH if device.kind == "gpu" else BATCH // 16,
                "updates": round(UPDATES * share),
                "epochs": epochs,
                "replay_rows": 2**23 if device.kind == "gpu" else 2**18,
            },
            "evaluation": {"random_draws": 8, "bootstrap": 200},
            "runtime": {"device": device.name, "runner": "inline"},
        }
    )


def _study(folder: Path, config: Config, folds: int, clock: Clock) -> tuple[int, list[Any]]:
    """Run everything on a lake; return the number of folds and the summaries of all trials."""
    experiment = Experiment(config, Lake(folder))
    with clock.phase("bars"):
        ingest(NAME, experiment.instrument(NAME), folder)
    with clock.phase("features"):
        for key, window in experiment.windows(NAME).items():
            if len(window):
                experiment.write_window(NAME, key)
    complete = [fold.key for fold in experiment.folds(NAME) if fold.status == "complete"]
    if len(complete) < folds:
        raise ValueError(f"{folds} folds asked for; the bars allow {len(complete)}")
    keys, summaries = complete[:folds], []
    for key in keys:
        specs = [TrainSpec(config, folder, NAME, key, seed, "bench") for seed in config.study.seeds]
        with clock.phase("training, the rest"):
            summaries += map(read_json, seed_training.train_seeds(specs))
    with clock.phase("evaluation, the rest"):
        for _ in fold_result.evaluate_folds(experiment, NAME, keys, "bench"):
            pass
    with clock.phase("statistics and DuckDB"):
        walk_forward.publish_study(experiment, "bench")
    return len(keys), summaries


def _same(series: Array, key: object, round: int, resamples: int) -> Array:
    """Return the series itself so many times, in the place of resamples."""
    return np.tile(series, (resamples, 1))


def _listed(real: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    return lambda *given, **named: iter(list(real(*given, **named)))


def main() -> None:
    """Measure what the arguments say and print the table."""
    from tests.bench.report import command, figures, show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--bars", type=int, default=1_000_000)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.1, help="of the production budget")
    parser.add_argument("--network", choices=("mlp", "scenario"), default="mlp")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    device = select(given.device)
    rows = walk(device, given.bars, given.folds, given.seeds, given.share, given.network)
    run = figures(device, {"walkforward": rows})
    run["command"] = command(sys.argv[1:], "tests.bench.walkforward")
    show(run)
    if given.json:
        given.json.write_text(json.dumps(run, indent=1) + "\n")


if __name__ == "__main__":
    main()
