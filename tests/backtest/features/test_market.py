import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from backtest.errors import DataError
from backtest.features.market import market_features
from backtest.features.names import ADX, CUSUM, FEATURES
from tests.backtest.features.example import bars, features_of, random_bars, rolled

CALENDAR = slice(36, 40)


def column(name):
    return FEATURES.index(name)


# every early row, the edges of all windows, and the edge at which CUSUM walks lanes side by side
PREFIXES = [*range(1, 41), *range(54, 67), *range(88, 92), *range(118, 123), 300, 601, 1024]
LONG_PREFIXES = [1999, 2047, 2048, 2049, 3071, 3072, 4097]


@pytest.mark.parametrize("seed", ["talib", "wilder"])
def test_a_prefix_has_the_same_bits(seed):
    source = rolled(random_bars(4100), {57: 12.5, 800: -30.0})
    whole = features_of(source, adx_seed=seed)
    for t in PREFIXES + LONG_PREFIXES:
        part = features_of(source.prefix(t), adx_seed=seed)
        for name, ours, all_ours in zip(FEATURES, part.features.T, whole.features.T, strict=True):
            assert np.array_equal(ours, all_ours[:t]), (name, t)
        assert np.array_equal(part.sigma, whole.sigma[:t])
        assert np.array_equal(part.event, whole.event[:t])


def test_later_rows_times_ten_change_nothing_before_them():
    source = random_bars(1500)
    whole = features_of(source)
    for stop in (7, 400, 1301):
        columns = {}
        for name in ("open", "high", "low", "close", "volume"):
            columns[name] = getattr(source, name).copy()
            columns[name][stop:] *= 10
        disturbed = features_of(replace(source, **columns))
        assert np.array_equal(disturbed.features[:stop], whole.features[:stop])
        assert not np.array_equal(disturbed.features[stop:], whole.features[stop:])


def test_a_constant_added_to_every_price_changes_neither_moves_nor_adx_nor_cusum():
    source = random_bars(800)
    base = features_of(source)
    for shift in (4096.0, -8192.0):  # sums stay exact on a tick of 0.25, prices turn negative
        prices = (getattr(source, name) + shift for name in ("open", "high", "low", "close"))
        moved = features_of(bars(*prices, source.volume, source.time))
        exact = [*range(10), *range(10, 26), *range(30, 36), ADX, CUSUM]
        assert np.array_equal(moved.features[:, exact], base.features[:, exact])
        assert np.allclose(moved.features, base.features, rtol=0, atol=1e-8)
    # any other constant: float rounding of prices near 6000 over a sigma of about 1
    prices = (getattr(source, name) + 1000.01 for name in ("open", "high", "low", "close"))
    moved = features_of(bars(*prices, source.volume, source.time))
    assert np.allclose(moved.features, base.features, rtol=0, atol=1e-7)


def test_scale_of_prices_does_not_matter():
    source = random_bars(800)
    prices = (getattr(source, name) * 2.0**-30 for name in ("open", "high", "low", "close"))
    scaled = features_of(bars(*prices, source.volume, source.time))
    assert np.allclose(scaled.features, features_of(source).features, rtol=0, atol=1e-8)


def test_no_feature_sees_the_gap_of_a_roll():
    source = random_bars(900)
    contracts = rolled(source, {1: 3.0, 57: 112.5, 58: -7.0, 603: -5300.25})
    assert (contracts.close < 0).any()
    assert np.array_equal(features_of(contracts).features, features_of(source).features)
    assert np.array_equal(features_of(contracts).sigma, features_of(source).sigma)
    unmarked = replace(contracts, roll=np.zeros(900, dtype=np.bool_))
    assert not np.array_equal(features_of(unmarked).features, features_of(source).features)


@pytest.mark.parametrize("price", [0.0, 0.1, 4999.99, -37.63])
def test_flat_bars_give_zero(price):
    flat = np.full(700, price)
    out = features_of(bars(flat, flat, flat, flat, np.zeros(700))).features
    out[:, CALENDAR] = 0
    assert (out[:, column("zero_volume")] == 1).all()
    out[:, column("zero_volume")] = 0
    assert not out.any()


def test_a_standstill_after_moves_ends_in_zeros_and_stays_finite():
    moving = random_bars(500)
    last = moving.close[-1] * 1.1  # off the dyadic tick, so that averages of it round
    prices = (
        np.concatenate([getattr(moving, name) * 1.1, np.full(9000, last)])
        for name in ("open", "high", "low", "close")
    )
    out = features_of(bars(*prices)).features
    assert np.isfinite(out).all()
    # RSI, DI, DX and ADX are ratios of two sums that fade alike: they keep their last value
    kept = {name for name in FEATURES if np.abs(out[9000:, column(name)]).max() > 1e-12}
    assert kept - {"rsi_14", "plus_di_14", "minus_di_14", "dx_14", "adx"} == {
        "volume_ratio_5_60",
        *FEATURES[CALENDAR],
    }


def test_an_uptrend_drives_adx_to_100():
    ramp = np.arange(300.0)
    out = features_of(bars(ramp - 0.5, ramp + 1, ramp - 1, ramp)).features
    assert out[-1, ADX] == pytest.approx(100)
    assert out[-1, column("plus_di_14")] == pytest.approx(0.5)  # 1 of a true range of 2
    assert out[-1, column("dx_14")] == pytest.approx(1)
    assert out[-1, column("efficiency_20")] == 1
    assert out[-1, column("rsi_14")] == 1


def test_first_rows_by_hand():
    open_, close = np.array([10.0, 10.0, 13.0]), np.array([10.0, 13.0, 12.0])
    high, low = np.array([11.0, 15.0, 13.5]), np.array([9.0, 9.0, 11.5])
    out, sigma, event = features_of(bars(open_, high, low, close))
    lam = 2 ** (-1 / 60)
    assert sigma == pytest.approx([0, 3, math.sqrt(lam * 9 + (1 - lam))])
    assert out[0, :22].tolist() == [0] * 22  # sigma is 0: nothing to measure with
    assert out[:, 0] == pytest.approx([0, 1, -1 / sigma[2]])
    assert out[:, 1] == pytest.approx([0, 0, 2 / sigma[2] / math.sqrt(2)])
    assert out[1, 10:14] == pytest.approx([1, 2, 2 / 3, 1 / 3])
    lam_8 = 2 ** (-1 / 8)
    assert out[2, 18] == pytest.approx(math.sqrt(lam_8 * 9 + 1 - lam_8) / sigma[2])
    # S+ = 0.5 at bar 1; at bar 2 S- = min(0, 0 - 1/sigma + 0.5) against S+ = max(0, ...)
    move = -1 / sigma[2]
    assert out[:, CUSUM] == pytest.approx([0, 0.125, max(0.5 + move - 0.5, -(move + 0.5), 0) / 4])
    assert event.tolist() == [0, 0, 0]


def test_cusum_column_holds_the_value_before_the_reset():
    ramp = np.arange(40.0)
    out, _, event = features_of(bars(ramp, ramp, ramp, ramp))
    # x = 1: S+ grows by 0.5; bar 9 holds 4.5/4 and fires, bar 10 starts again
    assert out[8:11, CUSUM] == pytest.approx([1.0, 1.125, 0.125])
    assert event[8:11].tolist() == [0, 1, 0]
    assert np.flatnonzero(event).tolist() == [9, 18, 27, 36]


def test_limits():
    close = np.concatenate([np.full(300, 100.0), [101.0], np.full(300, 5000.0)])
    close[:300] += 0.25 * (np.arange(300) % 2)
    out = features_of(bars(close, close + 90, close - 90, close, np.full(601, 1e9))).features
    others = np.delete(out, [ADX, CUSUM], axis=1)
    assert np.abs(others).max() == 10
    assert np.abs(out[:, column("cci_20")]).max() <= 5
    assert out[:, ADX].max() > 10
    assert (out[:, CUSUM] >= 0).all()


def test_unknown_volume_gives_zero_columns():
    source = random_bars(200)
    known = features_of(source).features
    assert known[:, 22:26].any(axis=0).all()
    assert not features_of(source, volume_known=False).features[:, 22:26].any()


def test_bad_input_is_refused_before_talib_sees_it():
    source = random_bars(100)
    for name in ("open", "high", "low", "close", "volume"):
        values = getattr(source, name).copy()
        values[30] = np.nan
        with pytest.raises(DataError, match=f"{name} = nan at row 30"):
            features_of(replace(source, **{name: values}))
    volume = source.volume.copy()
    volume[4] = -1
    with pytest.raises(DataError, match="volume = -1 at row 4"):
        features_of(replace(source, volume=volume))
    shorter = [getattr(source, n) for n in ("open", "high", "low", "close", "volume", "roll")]
    with pytest.raises(DataError, match="has not 100 rows"):
        market_features(*shorter, source.time[1:])
    huge = replace(source, **{n: getattr(source, n) * 1e304 for n in ("open", "high", "low")})
    with pytest.raises(DataError, match=r"features: \w+ is .* at row"):
        features_of(replace(huge, close=source.close * 1e304))


def test_no_bars_give_no_rows():
    assert features_of(random_bars(1).prefix(0)).features.shape == (0, 42)
    assert features_of(random_bars(1)).features.shape == (1, 42)


def test_negative_oil_prices(shared_data):
    with (shared_data / "yahoo_cl" / "CL=F.csv").open() as file:
        rows = list(csv.DictReader(file))
    keys = {key.lower(): key for key in rows[0]}
    columns = {
        name: np.array([float(row[keys[name]]) for row in rows])
        for name in ("open", "high", "low", "close", "volume")
    }
    out, sigma, event = features_of(bars(*columns.values()))
    day = int(np.argmin(columns["close"]))
    assert columns["close"][day] == pytest.approx(-37.63)
    assert np.isfinite(out).all()
    assert out[day, 0] == pytest.approx(
        (columns["close"][day] - columns["close"][day - 1]) / sigma[day]
    )
    assert out[day, 0] < -8
    assert event[day] == -1
