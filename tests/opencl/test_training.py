"""Training runs: the same bits in every process, resumed or not, on every device."""

import json
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from backtest.agent.checkpoint import load_policy
from backtest.agent.result import StoppedError
from backtest.errors import DataError
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json
from opencl import seed_training
from opencl.devices import select
from opencl.seed_training import train_seed, train_seeds
from opencl.training import TrainSpec
from tests.study import FOLDS, configuration, copied

NAME, KEY = "ONE", FOLDS[0]
SEED = 1
# what a summary says about when and by whom it was made, not about what
TOLD = ("started", "seconds", "steps_per_s", "updates_per_s", "run_id")


def spec_of(experiment, run="again", seed=SEED, key=KEY):
    return TrainSpec(experiment.config, experiment.lake.root, NAME, key, seed, run)


@pytest.fixture
def untrained(study, tmp_path):
    """The study on a copy of its lake, without policies and results."""
    lake = Lake(tmp_path)
    for name in ("bars", "features"):
        (tmp_path / name).symlink_to(study.lake.root / name)
    return Experiment(study.config, lake)


def summary_of(experiment, seed=SEED, key=KEY):
    """Return the summary of one seed, and its path."""
    fold_id = experiment.fold_id(NAME, experiment.fold(NAME, key))
    folder = experiment.lake.policies(experiment.study_id, NAME, key, fold_id)
    return folder / f"seed_{seed}.json"


def content(path):
    """What a run decides: its summary without clocks, and the tensors of its policy."""

    def without(value):
        if isinstance(value, dict):
            return {name: without(v) for name, v in value.items() if name not in TOLD}
        return [without(v) for v in value] if isinstance(value, list) else value

    policy = load_policy(path.with_suffix(".safetensors"))
    tensors = {name: array.tobytes() for name, array in sorted(policy.state.items())}
    return without(read_json(path)), tensors


def run(spec):
    return str(train_seed(spec))


def test_the_same_bits_in_another_process(study, untrained):
    first = content(summary_of(study))
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
        path = pool.submit(run, spec_of(untrained)).result()
    assert path == str(summary_of(untrained))
    again = content(summary_of(untrained))
    assert again == first
    assert first[0]["policy"]["weight_hash"] == again[0]["policy"]["weight_hash"]
    assert content(summary_of(study, seed=0))[1] != first[1]


def test_what_was_made_is_not_made_again(study, tmp_path):
    again = copied(study, tmp_path)
    path = summary_of(again)
    before = path.read_bytes()
    assert train_seed(spec_of(again)) == path
    assert path.read_bytes() == before
    # without the policy beside it the summary says nothing
    path.with_suffix(".safetensors").unlink()
    train_seed(spec_of(again))
    assert content(path) == content(summary_of(study))


def test_a_stopped_run_continues_to_the_same_bits(study, untrained):
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked > 3  # in the updates of the second epoch

    with pytest.raises(StoppedError, match="epoch 1 of 2"):
        train_seed(spec_of(untrained), stop)
    path = summary_of(untrained)
    assert not path.exists()
    assert len(list(path.parent.glob("*.state"))) == 1
    train_seed(spec_of(untrained))
    assert content(path) == content(summary_of(study))
    assert not list(path.parent.glob("*.state"))


def test_the_summary(study):
    found = read_json(summary_of(study))
    fold, bars = study.fold(NAME, KEY), study.bars(NAME)
    validation = fold.validation
    sessions = np.unique(bars.session[validation.start : validation.stop])
    assert [row["session"] for row in found["trial_return"]] == sessions.tolist()
    assert len(found["curve"]) == study.config.learner.epochs
    policy = found["policy"]
    assert (policy["run_id"], policy["seed"], policy["updates"]) == ("trained", SEED, 12)
    best = found["curve"][policy["best_epoch"]]
    assert policy["validation_sharpe"] == best["validation_sharpe"] == found["trial"]["objective"]
    # the Sharpe of the returns beside it
    pnl = np.array([row["pnl"] for row in found["trial_return"]])
    if pnl.std() > 0:
        ratio = pnl.mean() / pnl.std(ddof=1) * np.sqrt(365)
        assert policy["validation_sharpe"] == pytest.approx(ratio, rel=1e-9)
    stored = load_policy(study.lake.root / policy["path"])
    assert stored.base == bars.close[fold.train.start]
    assert stored.weights.weight_hash == policy["weight_hash"]
    assert json.loads(json.dumps(found)) == found


def test_rows_outside_train_and_validation_cannot_matter(study, untrained):
    """The files of the test window and of everything else are gone."""
    features = untrained.lake.root / "features"
    source = features.resolve()
    features.unlink()
    kept = untrained.history_keys(NAME, KEY)
    for path in source.glob(f"*/{NAME}/*.parquet"):
        if path.stem in kept:
            target = features / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    assert len(list(features.rglob("*.parquet"))) == 3
    train_seed(spec_of(untrained))
    assert content(summary_of(untrained)) == content(summary_of(study))


def test_a_skipped_fold(study):
    with pytest.raises(DataError, match="fold 2000-01-31 of ONE is skipped"):
        train_seed(spec_of(study, key="2000-01-31"))


def test_every_device_trains_a_run_of_its_own(study, untrained, device):
    settings = configuration('study.instruments=["ONE","TWO"]', f"runtime.device={device.platform}")
    moved = Experiment(settings, untrained.lake)
    assert moved.study_id == study.study_id
    lines = []
    train_seed(spec_of(moved), log=lambda text, share: lines.append((text, share)))
    before, after = (content(summary_of(e))[0] for e in (study, moved))
    same = device is select(study.config.runtime.device)
    assert (after == before) == same
    assert (after["made_by"] == before["made_by"]) == same
    assert after["policy"]["device"] == device.name
    assert after["policy"]["updates"] == 12
    assert len(lines) == 1 + 2  # what it plans, and the epochs
    assert lines[-1][1] == 1


@pytest.mark.parametrize("room", [None, 1], ids=["together", "one at a time"])
def test_seeds_side_by_side_learn_what_each_learns_alone(study, untrained, monkeypatch, room):
    """Their validation windows are one launch; a small device trains them one after the other."""
    groups, real = [], seed_training.JointEvaluator
    monkeypatch.setattr(
        seed_training,
        "JointEvaluator",
        lambda device, shape, evaluators, seen: (
            groups.append(len(evaluators)) or real(device, shape, evaluators, seen)
        ),
    )
    if room:
        monkeypatch.setattr(seed_training, "SHARE", 2**40)
    specs = [spec_of(untrained, "trained", seed) for seed in (0, 1)]
    paths = train_seeds(specs)
    assert groups == ([1, 1] if room else [2])
    for seed, path in enumerate(paths):
        assert path == summary_of(untrained, seed)
        assert content(path) == content(summary_of(study, seed))
    groups.clear()
    assert train_seeds(specs) == paths and groups == []
