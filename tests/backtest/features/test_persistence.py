import numpy as np
import pytest

from backtest.features.persistence import autocorrelation, efficiency_ratio, variance_ratio


def series(n, seed=0):
    close = np.cumsum(np.random.default_rng(seed).normal(size=n)) + 40
    return np.diff(close, prepend=close[0]), close


def test_autocorrelation_equals_its_definition():
    d, _ = series(200)
    ours = autocorrelation(d)
    assert not ours[:60].any()
    for b in range(60, 200):
        e = d[b - 59 : b + 1] - d[b - 59 : b + 1].mean()
        assert ours[b] == pytest.approx((e[1:] * e[:-1]).sum() / (e * e).sum(), abs=1e-12)


def test_autocorrelation_of_alternating_moves():
    # e = +-1: 59 products of -1 over 60 squares
    close = np.tile([0.0, 1.0], 50)
    assert autocorrelation(np.diff(close, prepend=0))[-1] == pytest.approx(-59 / 60)


def test_variance_ratio_equals_its_definition():
    d, close = series(200)
    ours = variance_ratio(d, close)
    assert not ours[:64].any()
    for b in range(64, 200):
        moves = np.array([close[i] - close[i - 5] for i in range(b - 59, b + 1)])
        assert ours[b] == pytest.approx(moves.var() / (5 * d[b - 59 : b + 1].var()), abs=1e-11)


def test_efficiency_needs_one_price_more_than_differences():
    # six prices, five differences all upward: 1.00, not the .80 of four differences over five
    close = np.array([1.0, 2, 3, 4, 5, 6])
    d = np.diff(close, prepend=close[0])
    assert efficiency_ratio(d, close, 5).tolist() == [0, 0, 0, 0, 0, 1]
    assert efficiency_ratio(d[:5], close[:5], 5).tolist() == [0] * 5
    zigzag = np.array([0.0, 2, 1, 3, 2, 4])  # |4| over 2+1+2+1+2
    assert efficiency_ratio(np.diff(zigzag, prepend=0), zigzag, 5)[-1] == 0.5


@pytest.mark.parametrize("step", [0.0, 0.1, 0.01])
def test_a_ramp_has_no_variance_whatever_its_rounding(step):
    close = 5000 + step * np.arange(300)
    d = np.diff(close, prepend=close[0])
    assert not autocorrelation(d)[60:].any()
    assert not variance_ratio(d, close)[64:].any()


def test_short_series_are_zero():
    for n in (1, 30, 58, 59, 60):
        d, close = series(n)
        assert not autocorrelation(d).any()
        assert not variance_ratio(d, close).any()
