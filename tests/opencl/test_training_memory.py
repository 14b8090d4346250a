"""Planned bytes of training: what the arrays really take, and no run that cannot fit."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy
from backtest.agent.replay import Replay, row_bytes
from backtest.errors import DeviceError
from opencl import seed_training
from opencl.collector import DeviceCollector
from opencl.exchange.learner import torch_device
from opencl.rollout import Rollout
from opencl.seed_training import train_seed
from opencl.training import TrainSpec, shape
from opencl.training_memory import training_memory
from tests.bench.scene import gaussian_tape
from tests.skills import SCENARIO
from tests.study import FOLDS, configuration, copied

TRAIN, VALIDATION = 900, 300


def test_parts_are_what_the_arrays_take(device):
    config = configuration()
    planned = training_memory(config, device, TRAIN, VALIDATION)
    x = np.zeros((TRAIN, 115), np.float32)
    rollout = Rollout(device, gaussian_tape(TRAIN), x, shape(config))
    weights = random_policy(config.network.hidden, config.network.atoms)
    collector = DeviceCollector(rollout, np.zeros(2, np.uint32), 8, 256)
    out = collector.collect(weights, 0, 1.0)
    names = ("action", "reward", "equity", "end", "portfolio")
    held = sum(getattr(out, name).nbytes for name in names)
    launch = rollout.launch(
        [weights], np.zeros((1, 8), np.int64), 256, np.zeros((1, 2), np.uint32), stage_round=0,
        portfolio=True, trace=True,
    )  # fmt: skip
    launch.read()
    assert launch.planned["outputs"] == planned["experience"] > held
    assert launch.planned["tables"] == planned["bar tables"]
    rows = launch.planned["bars"] + launch.planned["states"]
    assert planned["bars and states"] == rows * (TRAIN + VALIDATION) // TRAIN
    replay = Replay(100, x, 0, stack_size=3)
    assert sum(c.nbytes for c in replay.columns.values()) == 100 * row_bytes(3)
    if "replay" in planned:
        assert planned["replay"] == config.learner.replay_rows * row_bytes(1)
        assert planned["learner's states"] == Replay(1, x, 0).states.nbytes


@pytest.mark.parametrize("what", ["bars", "learner.envs", "learner.replay_rows"])
def test_bytes_grow_linearly(device, what):
    def total(n):
        overrides = () if what == "bars" else (f"{what}={n}",)
        bars = n if what == "bars" else 1000
        return training_memory(configuration(*SCENARIO, *overrides), device, bars, 0).total

    one, two, three = (total(n) for n in (1000, 2000, 3000))
    assert three - two == two - one
    learns_here = device.kind == "cpu" or torch_device(device) == "cuda"
    assert two > one or (what == "learner.replay_rows" and not learns_here)


def test_what_cannot_fit_is_refused_before_it_is_begun(study, tmp_path, monkeypatch):
    again = copied(study, tmp_path, 'study.instruments=["ONE","TWO"]')
    real = seed_training.select
    monkeypatch.setattr(
        seed_training, "select", lambda name: replace(real(name), global_memory=10**6)
    )
    spec = TrainSpec(again.config, tmp_path, "ONE", FOLDS[2], 0, "run")
    with pytest.raises(DeviceError, match=r"replay .* planned, there are 977 KiB; use fewer"):
        train_seed(spec)


def test_the_plan_is_told(study, tmp_path):
    again = copied(study, tmp_path, 'study.instruments=["ONE","TWO"]')
    lines = []
    train_seed(
        TrainSpec(again.config, tmp_path, "ONE", FOLDS[2], 0, "run"),
        log=lambda *line: lines.append(line),
    )
    assert lines[0][0].startswith("seed 0 plans ") and "replay" in lines[0][0]
