import numpy as np
import pytest

from backtest.features.oscillators import average_true_range, cci, macd, rsi, stochastic


def test_rsi_by_hand():
    # 14 changes: 10 of +1 and 4 of -1, so RSI = 10/14
    changes = np.array([1.0] * 10 + [-1.0] * 4)
    close = np.concatenate([[50.0], 50 + np.cumsum(changes)])
    assert rsi(close).tolist()[:14] == [0] * 14
    assert rsi(close)[14] == pytest.approx(10 / 14)


def test_stochastic_by_hand():
    # 14 bars within 10..30, close at 25
    close = np.full(20, 25.0)
    assert stochastic(np.full(20, 30.0), np.full(20, 10.0), close)[12:14].tolist() == [0, 0.75]


def test_cci_by_hand():
    # 19 typical prices of 0 and one of 20: mean 1, mean deviation (19*1 + 19)/20 = 1.9
    price = np.zeros(20)
    price[-1] = 20.0
    assert cci(price, price, price)[-1] == pytest.approx(19 / (0.015 * 1.9))


@pytest.mark.parametrize("price", [0.1, 1 / 3, 4999.99, -37.63])
def test_equal_prices_give_zero_not_rounding(price):
    flat = np.full(3000, price)
    assert not cci(flat + 1, flat - 1, flat).any()
    assert not cci(flat, flat, flat).any()
    assert not macd(flat).any()
    assert not rsi(flat).any()
    assert not stochastic(flat, flat, flat).any()
    assert not average_true_range(flat, flat, flat).any()


def test_macd_forgets_a_jump_at_a_standstill():
    close = np.concatenate([np.full(100, 4999.99), np.full(3000, 5012.37)])
    assert abs(macd(close)[105]) > 0.1
    assert not macd(close)[2000:].any()


def test_macd_starts_at_bar_33():
    values = macd(np.arange(60.0) ** 2)
    assert np.flatnonzero(values)[0] == 33


def test_average_true_range_of_a_constant_range():
    values = average_true_range(np.full(30, 12.0), np.full(30, 10.0), np.full(30, 11.0))
    assert values[14:] == pytest.approx(2)
    assert not values[:14].any()
