"""The chain under changed futures, and that the comparison can fail."""

import numpy as np
import pytest

from backtest.config import Config, Synthetic, parse
from backtest.data.ingest import ingest
from backtest.experiment import FoldMarket
from backtest.sections import Instrument
from backtest.splits import WalkForward
from opencl.lookahead import fold_comparisons, records


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    settings = Instrument(source="synthetic", bar="1h", synthetic=Synthetic(bars=1500, seed=4))
    return ingest("X", settings, tmp_path_factory.mktemp("lake")).bars


def one_fold():
    return WalkForward(500, 150, 150, warmup=605).folds(1500)[0]


def test_nothing_that_a_fold_uses_sees_its_future(bars, device):
    rows = fold_comparisons(Config(), "X", bars, one_fold(), device)
    assert {row.what.split(":")[0] for row in rows} == {"train", "validation", "test"}
    assert all(row.compared > 0 for row in rows)
    assert [row for row in rows if not row.ok] == []


def test_a_scaler_fitted_on_everything_is_caught(bars, device, monkeypatch):
    honest = FoldMarket.fit

    def leaky(config, instrument, fold, table):
        wide = fold.__class__(**{**vars(fold), "train": type(fold.train)(605, table.stop)})
        made = honest(config, instrument, wide, table)
        return FoldMarket(config, instrument, fold, made.base, made.scaler)

    monkeypatch.setattr(FoldMarket, "fit", staticmethod(leaky))
    rows = fold_comparisons(parse({}), "X", bars, one_fold(), device)
    assert {row.what for row in rows if not row.ok} >= {"train: scaler", "train: states"}


def test_records_compare_bytes():
    a = np.zeros(3, [("x", np.float32), ("y", np.int32)])
    assert records(a).shape == (3, 8)
