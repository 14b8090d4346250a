"""The audit's bars: train windows only, one base, and rows that the store takes."""

import numpy as np
import pytest

from backtest.config import load, profile
from backtest.data.ingest import ingest
from backtest.experiment import Experiment
from backtest.lake import Lake
from backtest.publication import publish
from backtest.queries import query
from opencl.reward_audit import bars_audit, synthetic_audit, train_tape, write_audits

SMALL = ["audit.synthetic_episodes=16", "audit.user_episodes=8", "audit.horizons=[20]"]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    found = Experiment(load(profile("smoketest"), SMALL), Lake(lake))
    ingest("SP500", found.instrument("SP500"), lake)
    return found


def test_the_tape_ends_with_the_last_train_window(experiment):
    bars = experiment.bars("SP500")
    tape, windows = train_tape(experiment, "SP500", bars)
    folds = experiment.folds("SP500")
    assert windows == tuple(fold.train for fold in folds)
    assert (tape.start, tape.stop) == (folds[0].train.start, folds[-1].train.stop)
    assert float(tape.params["base"]) == pytest.approx(bars.close[tape.start])
    # bars behind the last train window cannot change it
    shorter, _ = train_tape(experiment, "SP500", bars.prefix(folds[-1].test.start + 1))
    assert np.array_equal(shorter.bars, tape.bars)


def test_rows_land_in_the_store(experiment):
    bars = experiment.bars("SP500")
    audits = [synthetic_audit(experiment, "SP500"), bars_audit(experiment, "SP500", bars)]
    write_audits(experiment, "SP500", audits, "run")
    publish(experiment.lake)
    rows = query(experiment.lake, "SELECT DISTINCT study_id, source FROM reward_audit").rows
    assert {row["source"] for row in rows} == {"synthetic", "bars"}
    assert {row["study_id"] for row in rows} == {experiment.study_id}


def test_another_notional_changes_the_size(experiment):
    bars = experiment.bars("SP500")
    assert bars_audit(experiment, "SP500", bars, 0.5).notional == pytest.approx(0.5, rel=1e-5)
