import numpy as np
import pytest

from backtest.config import Synthetic
from backtest.data.spacing import Spacing
from backtest.data.synthetic import ar1, signs, synthetic
from backtest.errors import ConfigError
from tests.backtest.data.conftest import Ingest

HOUR = Spacing(1, "h")


def differences(settings: Synthetic) -> np.ndarray:
    close = synthetic(settings, HOUR).close
    return np.diff(np.concatenate([[settings.price], close]))


@pytest.mark.parametrize("phi", [0.0, 0.3, -0.3, 0.9])
def test_spread_and_correlation_are_those_declared(phi: float) -> None:
    d = differences(Synthetic(bars=100_000, seed=3, phi=phi))
    assert d.std() == pytest.approx(1.2, rel=0.03)
    assert np.corrcoef(d[1:], d[:-1])[0, 1] == pytest.approx(phi, abs=0.012)
    innovation = d[1:] - phi * d[:-1]
    assert innovation.std() == pytest.approx(1.2 * np.sqrt(1 - phi**2), rel=0.03)
    assert abs(np.corrcoef(innovation[1:], innovation[:-1])[0, 1]) < 0.012


def test_the_spread_is_the_same_from_the_first_bar_on() -> None:
    first = [differences(Synthetic(bars=1, seed=seed, phi=0.9))[0] for seed in range(500)]
    assert np.std(first) == pytest.approx(1.2, rel=0.1)


def test_regimes_switch_the_sign_between_blocks() -> None:
    settings = Synthetic(bars=100_000, seed=1, phi=0.3, regime_bars=500)
    sign = signs(settings)
    assert (sign.reshape(200, 500) == sign[::500, None]).all()
    assert abs(sign.mean()) < 0.3  # 200 fair draws
    d = differences(settings)
    assert d.std() == pytest.approx(1.2, rel=0.03)
    for side in (-1, 1):
        rows = np.flatnonzero(sign[1:] == side) + 1
        slope = (d[rows] * d[rows - 1]).mean() / (d[rows - 1] ** 2).mean()
        assert slope == pytest.approx(0.3 * side, abs=0.02)


def test_the_recursion_by_hand() -> None:
    phi = np.array([0.6, 0.6, -0.6, -0.6])
    # sqrt(1 - .36) = .8: 1; .6*1 + .8*2 = 2.2; -.6*2.2 + .8*0 = -1.32; .792 + .8 = 1.592
    np.testing.assert_allclose(ar1(np.array([1.0, 2, 0, 1]), phi), [1, 2.2, -1.32, 1.592])


def test_bars_hang_together_and_are_hourly() -> None:
    raw = synthetic(Synthetic(bars=1000, seed=5), HOUR)
    assert raw.open[0] == 5000
    np.testing.assert_array_equal(raw.open[1:], raw.close[:-1])
    assert (raw.high >= np.maximum(raw.open, raw.close)).all()
    assert (raw.low <= np.minimum(raw.open, raw.close)).all()
    assert raw.volume is not None and (raw.volume > 0).all()
    assert str(np.datetime64(int(raw.stamp[0]), "ns"))[:16] == "2000-01-01T01:00"
    assert (np.diff(raw.stamp) == 3_600_000_000_000).all()


def test_a_seed_is_a_market_and_longer_ones_begin_alike() -> None:
    settings = Synthetic(bars=1000, seed=7, phi=0.15, regime_bars=100)
    one, two = synthetic(settings, HOUR), synthetic(settings, HOUR)
    longer = synthetic(settings.model_copy(update={"bars": 1500}), HOUR)
    other = synthetic(settings.model_copy(update={"seed": 8}), HOUR)
    for name in ("open", "high", "low", "close", "volume"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(longer, name)[:1000])
        assert (getattr(one, name)[1:] != getattr(other, name)[1:]).mean() > 0.9


def test_known_values() -> None:
    # Recorded once: another library version must not make another market.
    close = synthetic(Synthetic(bars=3, seed=0, phi=0.3), HOUR).close
    recorded = (4997.273739022011, 4995.65303169277, 4993.771419905973)
    np.testing.assert_allclose(close, recorded, rtol=0, atol=1e-9)


def test_ingested_without_assumptions_or_issues(take_in: Ingest) -> None:
    result = take_in("synthetic", synthetic=Synthetic(bars=2000, phi=0.3))
    assert result.issues == ()
    assert len(result.bars) == 2000 and str(result.spacing) == "1h"
    assert len(np.unique(result.bars.session)) == 84  # 2,000 / 24 days
    assert str(take_in("synthetic", bar="1min").spacing) == "1min"


def test_settings_that_cannot_be(take_in: Ingest) -> None:
    with pytest.raises(ConfigError, match=r"synthetic\.start = 'soon'"):
        take_in("synthetic", synthetic=Synthetic(start="soon"))
    with pytest.raises(ConfigError, match="around the clock"):
        take_in("synthetic", calendar="XNYS")
