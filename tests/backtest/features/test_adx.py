import csv
import json

import numpy as np
import pytest

from backtest.errors import ConfigError
from backtest.features.adx import directional
from tests.backtest.features.example import random_bars

NAMES = ("plus_di", "minus_di", "dx", "adx")


def read(path, *columns):
    with path.open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    return [np.array([float(row[name] or "nan") for row in rows]) for name in columns]


@pytest.mark.parametrize("name", ["sp500_daily", "eurusd_1h_2017", "ES201312_1m"])
def test_talib_seed_equals_the_recorded_talib_to_1e_9(shared_data, name):
    import pyarrow.parquet as pq

    table = pq.read_table(shared_data / "oracles_generated" / f"talib_adx14_{name}.parquet")
    high, low, close = (table[column].to_numpy() for column in ("high", "low", "close"))
    ours = directional(high, low, close, "talib")
    for field, column in zip(NAMES, ("plus_di14", "minus_di14", "dx14", "adx14"), strict=True):
        oracle = table[column].to_numpy()
        known = np.isfinite(oracle)
        assert known.sum() > 1000
        assert np.abs(getattr(ours, field)[known] - oracle[known]).max() < 1e-9
        assert not getattr(ours, field)[~known].any()


def test_wilder_seed_equals_the_stockcharts_spreadsheet_to_5e_8(shared_data):
    path = shared_data / "bukosabino_ta" / "cs-adx.csv"
    high, low, close, *oracles = read(path, "High", "Low", "Close", "+DI14", "-DI14", "DX", "ADX")
    ours = directional(high, low, close, "wilder")
    for field, oracle in zip(NAMES, oracles, strict=True):
        known = np.isfinite(oracle)
        assert known.sum() > 450
        assert np.abs(getattr(ours, field)[known] - oracle[known]).max() < 5e-8


def test_wilder_seed_equals_the_double_precision_oracle(shared_data):
    high, low, close = read(shared_data / "skender" / "default.csv", "high", "low", "close")
    rows = json.loads((shared_data / "skender" / "adx.standard.json").read_text())
    ours = directional(high, low, close, "wilder")
    for field, key in zip(NAMES, ("pdi", "mdi", "dx", "adx"), strict=True):
        oracle = np.array([np.nan if row[key] is None else row[key] for row in rows])
        known = np.isfinite(oracle)
        assert np.abs(getattr(ours, field)[known] - oracle[known]).max() < 1e-10
        assert not getattr(ours, field)[~known].any()
    assert ours.adx[[27, 29, 248, 501]] == pytest.approx(
        [15.945852, 19.7949, 30.5903, 34.2987], abs=5e-5
    )
    assert (ours.plus_di[14], ours.minus_di[14], ours.dx[14]) == pytest.approx(
        (21.9669, 18.5462, 8.4433), abs=5e-5
    )


def test_the_two_seeds_meet(shared_data):
    high, low, close = read(shared_data / "skender" / "default.csv", "high", "low", "close")
    apart = np.abs(directional(high, low, close).adx - directional(high, low, close, "wilder").adx)
    assert 0.7 < apart[27] < 0.81
    assert apart[27 + 150 :].max() < 0.0004


@pytest.mark.parametrize("seed", ["talib", "wilder"])
def test_uptrend_downtrend_and_flat(seed):
    ramp = np.arange(200.0) - 100
    up = directional(ramp + 1, ramp - 1, ramp, seed)
    assert up.adx[-1] == pytest.approx(100)
    assert up.minus_di[-1] == 0
    down = directional(1 - ramp, -1 - ramp, -ramp, seed)
    assert down.adx[-1] == pytest.approx(100)
    assert down.plus_di[-1] == 0
    flat = np.full(100, 0.1)
    assert all((column == 0).all() for column in directional(flat, flat, flat, seed))


@pytest.mark.parametrize("seed", ["talib", "wilder"])
def test_short_series_are_zero(seed):
    for n in (1, 2, 13, 14):
        assert all((column == 0).all() for column in directional(*np.ones((3, n)), seed))
    ramp = np.arange(28.0)
    values = directional(ramp + 1, ramp - 1, ramp, seed)
    assert np.flatnonzero(values.dx)[0] == 14
    assert np.flatnonzero(values.adx).tolist() == [27]


def test_wilder_by_hand():
    # every bar: range 2, +DM 1; the sums keep their size, so +DI = 50 and DX = 100 from bar 14 on
    ramp = np.arange(40.0)
    values = directional(ramp + 1, ramp - 1, ramp, "wilder")
    assert values.plus_di[14:] == pytest.approx(50)
    assert values.dx[14:] == pytest.approx(100)


@pytest.mark.parametrize("seed", ["talib", "wilder"])
def test_a_prefix_gives_the_same_bits(seed):
    bars = random_bars(400)
    whole = directional(bars.high, bars.low, bars.close, seed)
    for t in range(1, 400, 7):
        part = directional(bars.high[:t], bars.low[:t], bars.close[:t], seed)
        assert all(np.array_equal(a, b[:t]) for a, b in zip(part, whole, strict=True))


def test_unknown_seed():
    with pytest.raises(ConfigError, match="adx_seed"):
        directional(*np.ones((3, 30)), "ema")
