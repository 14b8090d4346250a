"""Rows of a fold: made once for all seeds, and what they are when read anew."""

import numpy as np
import pytest

from backtest.agent.foundation import load_foundation
from backtest.errors import DataError
from backtest.experiment import Experiment, FoldMarket
from backtest.lake import Lake
from opencl import fold_rows as module
from opencl.fold_rows import fold_rows
from tests.study import FOLDS, copied

NAME, KEY = "ONE", FOLDS[0]


@pytest.fixture
def reads(monkeypatch):
    """Count what is read from disk."""
    module._read.cache_clear()
    found, real = [], Experiment.read_windows
    monkeypatch.setattr(
        Experiment, "read_windows", lambda self, *given: found.append(given) or real(self, *given)
    )
    return found


def test_seeds_share_what_does_not_depend_on_them(study, reads):
    rows = fold_rows(study, NAME, KEY)
    tape, state = rows.train(None)
    again = fold_rows(Experiment(study.config, study.lake), NAME, KEY)
    assert again is rows and len(reads) == 1
    assert again.train(None)[1] is state
    train = fold_rows(study, NAME, KEY, validation=False)
    assert train is not rows and len(reads) == 2
    assert np.array_equal(train.train(None)[1], state)
    other = fold_rows(study, NAME, FOLDS[1])
    assert other.train(None)[0].start > tape.start


def test_forecasts_of_a_seed_stay_its_own(study, reads):
    rows = fold_rows(study, NAME, KEY)
    table = study.read_windows(NAME, study.history_keys(NAME, KEY))
    fold = study.fold(NAME, KEY)
    market = FoldMarket.fit(study.config, study.instrument(NAME), fold, table)
    fold_id = study.fold_id(NAME, fold)
    folder = study.lake.policies(study.study_id, NAME, KEY, fold_id)
    made = [load_foundation(folder / f"foundation_{seed}.safetensors")[0] for seed in (0, 1)]
    for foundation in (made[0], None, made[1]):
        for window in ("train", "validation", "collected"):
            tape, state = getattr(rows, window)(foundation)
            wanted, states = getattr(market, window)(table, foundation)
            assert np.array_equal(state, states) and np.array_equal(tape.aux, wanted.aux)
            assert tape.bars.tobytes() == wanted.bars.tobytes()


def test_a_file_written_again_is_read_again(study, tmp_path, reads):
    again = copied(study, tmp_path)
    first = fold_rows(again, NAME, KEY)
    keys = again.history_keys(NAME, KEY)
    again.write_window(NAME, keys[0])
    assert fold_rows(again, NAME, KEY) is not first and len(reads) == 2
    again.lake.features(again.study_id, NAME, keys[0]).unlink()
    with pytest.raises(DataError, match=keys[0]):
        fold_rows(again, NAME, KEY)
    elsewhere = Experiment(study.config, Lake(tmp_path / "elsewhere"))
    with pytest.raises(DataError):
        fold_rows(elsewhere, NAME, KEY)
