"""Rows of the aux verdict, written with a fold's result; the reference is the run without alpha."""

import numpy as np
import pytest

from backtest.agent.aux_report import NAMES
from backtest.agent.checkpoint import load_policy
from backtest.experiment import Experiment
from backtest.lake import Lake, read_json, read_table
from opencl.fold_result import evaluate_fold
from opencl.out_of_sample import OutOfSample
from opencl.seed_training import train_seed
from opencl.training import TrainSpec
from tests.study import FOLDS, configuration

NAME, KEY = "ONE", FOLDS[0]
OWN = "study.seeds=[1]", "learner.learning_rate=0.02", "learner.updates=40"
MOVED = ("tv_direction", "tv_magnitude")


def made(root, study, *overrides):
    """Train and evaluate one fold and seed on a lake; return its tables and the experiment."""
    experiment = Experiment(configuration(*OWN, *overrides), Lake(root))
    for key in experiment.windows(NAME):
        window = experiment.windows(NAME)[key]
        if len(window):
            experiment.write_window(NAME, key)
    train_seed(TrainSpec(experiment.config, root, NAME, KEY, 1, "run"))
    manifest = evaluate_fold(experiment, NAME, KEY, "run").manifest
    tables = {name: read_table(manifest.path(name)).to_pylist() for name in manifest.files}
    return tables, experiment


@pytest.fixture(scope="module")
def root(study, tmp_path_factory):
    root = tmp_path_factory.mktemp("verdicts")
    (root / "bars").symlink_to(study.lake.root / "bars")
    return root


@pytest.fixture(scope="module")
def reference(study, root):
    return made(root, study, "aux.alpha=false")


@pytest.fixture(scope="module")
def routed(study, root, reference):
    return made(root, study)


def test_the_reference_has_nothing_to_conclude(reference):
    tables, _ = reference
    rows = tables["aux_verdict"]
    assert [row["epoch"] for row in rows] == [-1, 0, 1]
    for row in rows:
        names = ("w_norm", "adam_m", "adam_v", "conclusion", "reference_fold_id", *MOVED)
        assert {row[name] for name in names} == {None}
        assert row["seed"] == 1
    (final, *_) = rows
    (trades,) = [
        row["value"]
        for row in tables["metric"]
        if (row["name"], row["variant"], row["seed"]) == ("n_trades", "none", 1)
    ]
    assert final["n_trades"] == trades
    assert final["low"] <= final["win_rate"] <= final["high"]


def test_the_run_with_alpha_is_judged_against_it(routed, reference):
    tables, _ = routed
    rows = tables["aux_verdict"]
    (fold,) = reference[0]["fold"]
    for row in rows:
        assert row["reference_fold_id"] == fold["fold_id"]
        assert row["w_norm"] > 0 and row["adam_m"] > 0 and row["adam_v"] > 0
        assert all(0 <= row[name] <= 1 for name in MOVED)
        assert row["tv_order"] is row["tv_urgency"] is row["advantage_var_order"] is None
        assert row["conclusion"] == "routed but not actionable"  # forty updates
    assert any(row[name] > 0 for row in rows for name in MOVED)


def test_the_forecasts_quality_has_a_row_a_figure(routed):
    rows = routed[0]["forecast_quality"]
    assert sorted(row["name"] for row in rows) == sorted(NAMES)
    values = {row["name"]: row["value"] for row in rows}
    assert values["aux_control_fails"] == 1 and 0 < values["aux_auc"] < 1


def test_the_policy_file_alone_gives_the_test_windows_forecasts(routed):
    """No foundation file is read after training; each seed plays on its own forecasts."""
    _, experiment = routed
    fold = experiment.open_fold(NAME, KEY)
    place = (experiment.study_id, NAME, KEY, experiment.fold_id(NAME, fold))
    folder = experiment.lake.policies(*place)
    summary = read_json(folder / "seed_1.json")
    policy = load_policy(experiment.lake.root / summary["policy"]["path"])
    assert set(policy.aux) == {"first_weight", "first_bias", "logit_weight", "logit_bias"}
    window = OutOfSample.open(experiment, NAME, fold, policy)
    tape, state = window.seen_by(policy)
    assert (tape.aux != 0).all() and len(tape.aux) == len(fold.test) + 1
    np.testing.assert_array_equal(policy.foundation.forecast(state), tape.aux)
    assert (window.tape.aux == 0).all()  # baselines have no forecast
    (folder / "foundation_1.safetensors").rename(folder / "gone")
    assert evaluate_fold(experiment, NAME, KEY, "again").manifest.files


def test_without_a_forecast_there_are_no_rows(study, root):
    tables, _ = made(root, study, "aux.enabled=false")
    assert not {"aux_verdict", "forecast_quality"} & set(tables)
