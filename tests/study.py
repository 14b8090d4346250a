"""A whole study in miniature: two synthetic markets, weekly windows of hourly bars, tiny networks.

Folds 2000-02-21, -28 and 03-06 are complete, 03-13 is partial. Training a seed takes a fraction of
a second.
"""

import shutil
from pathlib import Path

from backtest.config import Config, parse
from backtest.data.ingest import ingest
from backtest.experiment import Experiment
from backtest.lake import Lake

FOLDS = ("2000-02-21", "2000-02-28", "2000-03-06")
PARTIAL = "2000-03-13"
BARS = 1800


def market(seed: int, bars: int = BARS) -> dict:
    """Return the section of one instrument: AR(1) bars, costs of every kind."""
    return {
        "source": "synthetic",
        "synthetic": {"bars": bars, "phi": 0.3, "seed": seed},
        "calendar": "24/7",
        "bar": "1h",
        "point_value": 5.0,
        "tick_size": 0.25,
        "max_position": 10.0,
        "lot_size": 1.0,
        "commission": 0.1,
        "half_spread": 0.05,
        "slippage": 0.02,
    }


def configuration(*overrides: str, bars: int = BARS) -> Config:
    """Return the settings, with `section.key=value` overrides."""
    return parse(
        {
            "study": {"name": "tiny", "instruments": ["ONE"], "seeds": [0, 1]},
            "instruments": {"ONE": market(1, bars), "TWO": market(2, bars)},
            "folds": {"cron": "0 0 * * 1", "train": 2, "validation": 1},
            "network": {"hidden": [16, 12], "atoms": 11},
            "aux": {"hidden": 4, "updates": 20, "batch": 32},
            "learner": {
                "updates": 12,
                "epochs": 2,
                "batch": 32,
                "envs": 8,
                "episode_steps": 256,
                "target_every": 5,
            },
            "evaluation": {"bootstrap": 50, "random_draws": 4},
            "runtime": {"device": "cpu", "runner": "inline"},
        },
        overrides,
    )


def opened(root: Path, *overrides: str, bars: int = BARS) -> Experiment:
    """Return the study on a lake with bars and features of its instruments."""
    experiment = Experiment(configuration(*overrides, bars=bars), Lake(root))
    for name in experiment.config.study.instruments:
        ingest(name, experiment.instrument(name), root)
        for key, window in experiment.windows(name).items():
            if len(window):
                experiment.write_window(name, key)
    return experiment


def made(root: Path) -> Experiment:
    """Return the study of two instruments, two complete folds and a partial one evaluated."""
    from backtest.walk_forward import publish_study
    from opencl.fold_result import evaluate_fold
    from opencl.seed_training import train_seed
    from opencl.training import TrainSpec

    experiment = opened(root, 'study.instruments=["ONE","TWO"]')
    for name, keys in (("ONE", (*FOLDS[:2], PARTIAL)), ("TWO", FOLDS[:2])):
        for key in keys:
            for seed in experiment.config.study.seeds:
                train_seed(TrainSpec(experiment.config, root, name, key, seed, "trained"))
            evaluate_fold(experiment, name, key, "evaluated")
    publish_study(experiment, "published")
    return experiment


def copied(experiment: Experiment, root: Path, *overrides: str) -> Experiment:
    """Return the same study on a copy of its lake, to write to; overrides as in `configuration`."""
    shutil.copytree(experiment.lake.root, root, dirs_exist_ok=True)
    config = experiment.config if not overrides else configuration(*overrides)
    return Experiment(config, Lake(root))
