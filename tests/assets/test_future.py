"""The future of a fold, changed: what was learned must not move, bit for bit.

Bars after a window are replaced; features are computed from the changed history and read through
the same files as in a run.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.checkpoint import load_policy
from backtest.data.bars import write_bars
from backtest.lake import read_json
from opencl.devices import select
from opencl.first_round import digest
from opencl.seed_training import train_seed
from opencl.training import TrainSpec, exploring_collection
from tests.study import FOLDS, opened

KEY = FOLDS[0]
COLUMNS = ("open", "high", "low", "close", "volume")


def disturbed(experiment, root, first):
    """Return the study on another lake, whose bars from `first` on are others."""
    bars = experiment.bars("ONE")
    rng = np.random.default_rng(7)
    columns = {name: getattr(bars, name).copy() for name in COLUMNS}
    for name in COLUMNS[:4]:
        columns[name][first:] += 50.0 + rng.normal(0, 5)
    columns["high"][first:] += 9.0
    columns["volume"][first:] *= 3.0
    other = opened(root, f"learner.epochs={experiment.config.learner.epochs}")
    write_bars(replace(bars, **columns), other.lake.bars("ONE"))
    for key, window in other.windows("ONE").items():
        if window:
            other.write_window("ONE", key)
    return other


def learned(experiment):
    """Return parameters, scaler and price base of the trained policy, and its first round."""
    spec = TrainSpec(experiment.config, experiment.lake.root, "ONE", KEY, 0, "test")
    summary = read_json(train_seed(spec))
    policy = load_policy(experiment.lake.root / summary["policy"]["path"])
    arrays = {**policy.state, "center": policy.center, "scale": policy.scale}
    arrays["range"] = np.array([policy.v_max, policy.base])
    experience, _ = exploring_collection(spec, select("cpu"))
    assert digest(experience) == summary["first_round"]
    return arrays, summary["first_round"], summary["policy"]["weight_hash"]


def equal(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("window", "epochs"), [("train", 1), ("validation", 2)])
def test_later_bars_leave_the_policy_as_it_is(tmp_path, window, epochs):
    """After train: one epoch, since validation chooses among several. After validation: any."""
    experiment = opened(tmp_path / "a", f"learner.epochs={epochs}")
    stop = getattr(experiment.fold("ONE", KEY), window).stop
    other = disturbed(experiment, tmp_path / "b", stop)
    assert not np.array_equal(experiment.bars("ONE").close[stop], other.bars("ONE").close[stop])
    (arrays, first, weights), (arrays_b, first_b, weights_b) = learned(experiment), learned(other)
    assert equal(arrays, arrays_b) and weights == weights_b and first == first_b


def test_the_last_train_bar_is_read(tmp_path):
    """The counter-check: a change within the train rows does move the policy."""
    experiment = opened(tmp_path / "a", "learner.epochs=1")
    other = disturbed(experiment, tmp_path / "b", experiment.fold("ONE", KEY).train.stop - 1)
    assert learned(experiment)[2] != learned(other)[2]
