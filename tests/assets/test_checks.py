"""Asset checks on cases that hold and cases that do not."""

from dataclasses import replace
from types import SimpleNamespace

import dagster as dg
import numpy as np
import pytest

from assets import checks
from backtest.sections import Folds
from backtest.splits import Fold, Window
from opencl.devices import select
from opencl.training import TrainSpec, exploring_collection
from tests.study import FOLDS


def fold(train=(605, 700), validation=(713, 800), test=(813, 900)):
    return Fold(0, "k", Window(*train), Window(*validation), Window(*test))


def test_windows_a_purge_apart_are_disjoint():
    plan = Folds(warmup=605, horizon=12, fill_lag=1)
    assert checks.fold_disjoint(fold(), plan).passed
    assert not checks.fold_disjoint(fold(train=(605, 701)), plan).passed  # 12 bars before 713
    assert not checks.fold_disjoint(fold(test=(812, 900)), plan).passed
    assert not checks.fold_disjoint(fold(train=(604, 700)), plan).passed  # in the warm-up
    assert not checks.fold_disjoint(fold(validation=(690, 800)), plan).passed


def test_bars_in_order_and_whole(study):
    bars = study.bars("ONE")
    assert checks.time_order(bars).passed and checks.finite_bars(bars).passed
    broken = SimpleNamespace(**{n: getattr(bars, n).copy() for n in (*checks.PRICES, "volume")})
    broken.low[3] = np.nan
    found = checks.finite_bars(broken)
    assert not found.passed and found.metadata["low"].value == 1
    back = SimpleNamespace(time=np.array([1, 3, 2]))
    assert not checks.time_order(back).passed


def test_features_are_whole_after_the_warm_up(study):
    table = study.read_windows("ONE", [FOLDS[0]])
    assert checks.finite_features({"k": table}, 605).passed
    market = table.market.copy()
    market[5, 0] = np.nan
    broken = replace(table, market=market)
    assert not checks.finite_features({"k": broken}, 605).passed
    assert checks.finite_features({"k": broken}, table.first_bar + 6).passed  # still warming up


def test_the_oracle_replays_the_device(study):
    spec = TrainSpec(study.config, study.lake.root, "ONE", FOLDS[0], 0, "test")
    experience, tape = exploring_collection(spec, select("cpu"))
    assert checks.kernel_equals_oracle(tape, experience, exact=True).passed
    equity = experience.equity.copy()
    equity[3, 0] = np.nextafter(equity[3, 0], np.float32(np.inf))
    broken = replace(experience, equity=equity)
    found = checks.kernel_equals_oracle(tape, broken, exact=True)
    assert not found.passed and found.severity == dg.AssetCheckSeverity.ERROR
    assert "different: equity" in found.description
    # where the device does not round as NumPy does, a difference is told and stops nothing
    loose = checks.kernel_equals_oracle(tape, broken, exact=False)
    assert not loose.passed and loose.severity == dg.AssetCheckSeverity.WARN


def test_trades_add_up_to_equity():
    key = {"policy_kind": "learned", "variant": "none", "seed": 0}
    equity = [{**key, "pnl": 10.0, "size": 30.0}]
    assert checks.equity_reconciles(equity, [{**key, "pnl": 10.0}], 1000.0).passed
    assert not checks.equity_reconciles(equity, [{**key, "pnl": 10.1}], 1000.0).passed
    assert not checks.equity_reconciles(equity, [], 1000.0).passed
    flat = [{**key, "pnl": 0.0, "size": 0.0}]
    assert checks.equity_reconciles(flat, [], 1000.0).passed  # no trade, no equity


def test_ruin_is_told_with_the_policy():
    assert checks.not_ruined({"none seed 0": 1.0}, 0.0).passed
    found = checks.not_ruined({"none seed 0": 5.0, "none seed 1": -2.0}, 0.0)
    assert not found.passed and "none seed 1" in found.description


def test_a_narrow_range_is_a_warning():
    assert checks.range_holds({0: False}, {0: 0.01}).passed
    found = checks.range_holds({0: False, 3: True}, {0: 0.01, 3: 0.2})
    assert not found.passed and found.severity == dg.AssetCheckSeverity.WARN
    assert "[3]" in found.description


def test_a_control_that_forecasts_is_a_warning():
    """The same report comes with every seed; none, or one without a figure, says nothing."""
    good, bad = {"aux_control_fails": 1.0}, {"aux_control_fails": 0.0}
    for reports in ({0: good}, {0: {}}, {0: {"aux_control_fails": None}, 1: good}):
        assert checks.control_fails(reports).passed
    found = checks.control_fails({0: good, 4: bad})
    assert not found.passed and found.severity == dg.AssetCheckSeverity.WARN
    assert "[4]" in found.description


def test_the_audit_check_names_the_gaps():
    gap = SimpleNamespace(text="55 % over flat: -0.1")
    good = SimpleNamespace(failures=(), summary="order holds")
    bad = SimpleNamespace(failures=(gap,), summary="order FAILS")
    assert checks.audit_order([good]).passed
    found = checks.audit_order([good, bad])
    assert not found.passed and found.metadata["failures"].value == ["55 % over flat: -0.1"]


@pytest.mark.parametrize("missing", [(), ("2013-01-01",)])
def test_missing_folds_are_listed(missing):
    rows = [
        SimpleNamespace(instrument="ONE", fold_key=k, status="missing", reason=None)
        for k in missing
    ]
    found = checks.no_fold_missing(rows)
    assert found.passed == (not missing)
    assert all(key in found.description for key in missing)
