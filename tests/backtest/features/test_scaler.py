import numpy as np
import pytest

from backtest.errors import ConfigError, DataError
from backtest.features.scaler import Scaler


def rows(*column):
    return np.repeat(np.array(column, dtype=np.float64)[:, None], 84, axis=1)


def test_robust_is_median_and_interquartile_range():
    train = rows(0, 1, 2, 3, 100)
    train[:, 83] *= 10  # the slow twin of feature 41 has its own scale
    scaler = Scaler.fit(train)
    assert (scaler.center[0], scaler.scale[0]) == (2, 2)
    assert (scaler.center[83], scaler.scale[83]) == (20, 20)
    assert scaler.transform(rows(2, 5, 100, -100))[:, 0].tolist() == [0, 1.5, 5, -5]


def test_standard_is_mean_and_deviation_with_ddof_0():
    scaler = Scaler.fit(rows(1, 3), "standard")
    assert (scaler.center[0], scaler.scale[0]) == (2, 1)


@pytest.mark.parametrize("kind", ["robust", "standard"])
def test_no_spread_gives_scale_one(kind):
    scaler = Scaler.fit(rows(0.1, 0.1, 0.1), kind)
    assert (scaler.scale == 1).all()
    assert scaler.transform(rows(0.6))[0] == pytest.approx(0.5)


def test_stored_arrays_give_the_same_scaler():
    scaler = Scaler.fit(np.random.default_rng(0).normal(size=(50, 84)))
    back = Scaler.from_arrays({**scaler.arrays(), "weights": np.zeros(3)})
    assert np.array_equal(back.center, scaler.center)
    assert np.array_equal(back.scale, scaler.scale)


def test_bad_rows_are_refused():
    train = rows(1.0, 2.0)
    train[1, 40] = np.nan
    with pytest.raises(DataError, match="adx is nan at train row 1"):
        Scaler.fit(train)
    with pytest.raises(DataError, match=r"\(2, 42\)"):
        Scaler.fit(train[:, :42])
    with pytest.raises(DataError, match=r"\(0, 84\)"):
        Scaler.fit(train[:0])
    with pytest.raises(ConfigError, match="minmax"):
        Scaler.fit(rows(1.0), "minmax")
