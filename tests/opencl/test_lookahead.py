"""The chain under changed futures, and that the comparison can fail."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.config import Synthetic, parse
from backtest.data.ingest import ingest
from backtest.experiment import FoldMarket
from backtest.sections import Instrument
from backtest.splits import WalkForward
from opencl import lookahead
from opencl.lookahead import fold_comparisons, records


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    settings = Instrument(source="synthetic", bar="1h", synthetic=Synthetic(bars=1500, seed=4))
    return ingest("X", settings, tmp_path_factory.mktemp("lake")).bars


SMALL = {"aux": {"hidden": 4, "updates": 20, "batch": 32}}


def one_fold():
    return WalkForward(500, 150, 150, warmup=605).folds(1500)[0]


def test_nothing_that_a_fold_uses_sees_its_future(bars, device):
    rows = fold_comparisons(parse(SMALL), "X", bars, one_fold(), device)
    assert {row.what.split(":")[0] for row in rows} == {"train", "validation", "test"}
    assert all(row.compared > 0 for row in rows)
    assert [row for row in rows if not row.ok] == []
    forecasts = [row for row in rows if row.what in ("train: foundation", "train: forecasts")]
    assert len(forecasts) == 2 and min(row.compared for row in forecasts) == 487


def test_bars_behind_what_trains_the_policy_cannot_reach_it(bars, device):
    """The rest of the train window forms skills: it may be forecast, not fitted to."""
    config = parse(SMALL | {"skills": {"collect_from": 0.5}})
    rows = fold_comparisons(config, "X", bars, one_fold(), device)
    cut = {row.what: row.cut for row in rows}
    fold = one_fold()
    assert cut["train: foundation"] == fold.train.start + len(fold.train) // 2
    assert cut["collected: forecasts"] == fold.train.stop
    assert [row for row in rows if not row.ok] == []


def test_without_a_forecast_there_is_no_foundation_to_compare(bars, device):
    config = parse({"aux": {"enabled": False}})
    rows = fold_comparisons(config, "X", bars, one_fold(), device)
    assert "train: foundation" not in {row.what for row in rows}
    assert all(row.ok for row in rows)


def test_a_forecaster_that_sees_validation_rows_is_caught(bars, device, monkeypatch):
    honest = lookahead.lay_foundation

    def leaky(config, train, states, **settings):
        made = honest(config, train, states, **settings)
        later = float(whole.close[train.stop])
        return replace(made, aux_train=made.aux_train + np.float32(later))

    def remember(market, table):
        nonlocal whole
        whole = table
        return given(market, table)

    whole, given = None, lookahead.lay
    monkeypatch.setattr(lookahead, "lay_foundation", leaky)
    monkeypatch.setattr(lookahead, "lay", remember)
    rows = fold_comparisons(parse(SMALL), "X", bars, one_fold(), device)
    assert {row.what for row in rows if not row.ok} == {
        "train: foundation",
        "train: forecasts",
        "train: states",
    }


def test_a_scaler_fitted_on_everything_is_caught(bars, device, monkeypatch):
    honest = FoldMarket.fit

    def leaky(config, instrument, fold, table):
        wide = fold.__class__(**{**vars(fold), "train": type(fold.train)(605, table.stop)})
        made = honest(config, instrument, wide, table)
        return FoldMarket(config, instrument, fold, made.base, made.scaler)

    monkeypatch.setattr(FoldMarket, "fit", staticmethod(leaky))
    rows = fold_comparisons(parse(SMALL), "X", bars, one_fold(), device)
    assert {row.what for row in rows if not row.ok} >= {"train: scaler", "train: states"}


def test_records_compare_bytes():
    a = np.zeros(3, [("x", np.float32), ("y", np.int32)])
    assert records(a).shape == (3, 8)
