import numpy as np

from backtest.features.names import SLOW_SCALE, WARMUP
from backtest.features.slow import slow_features
from tests.backtest.features.example import bars, features_of, random_bars, rolled


def slow_of(source, **options):
    return slow_features(
        source.open,
        source.high,
        source.low,
        source.close,
        source.volume,
        source.roll,
        source.time,
        **options,
    )


def grouped(source):
    """Five bars as one, written out bar by bar."""
    groups = range(0, len(source) - SLOW_SCALE + 1, SLOW_SCALE)
    columns = [
        [source.open[i] for i in groups],
        [source.high[i : i + 5].max() for i in groups],
        [source.low[i : i + 5].min() for i in groups],
        [source.close[i + 4] for i in groups],
        [source.volume[i : i + 5].sum() for i in groups],
    ]
    time = np.array([source.time[i + 4] for i in groups], dtype=np.int64)
    return bars(*(np.array(column) for column in columns), time)


def test_value_is_that_of_the_last_closed_slow_bar():
    source = random_bars(1003)
    slow, ours = features_of(grouped(source)).features, slow_of(source)
    assert not ours[:4].any()
    for bar in range(4, 1003):
        # slow bar j closes with bar 5j + 4
        closed = max(j for j in range((bar + 6) // 5) if 5 * j + 4 <= bar)
        assert np.array_equal(ours[bar], slow[closed])


def test_a_prefix_has_the_same_bits():
    source = rolled(random_bars(700), {333: 9.25})
    whole = slow_of(source)
    for t in [*range(12), 299, 300, 301, 302, 303, 304, 605, 699]:
        assert np.array_equal(slow_of(source.prefix(t)), whole[:t])


def test_a_roll_in_the_middle_of_a_slow_bar_is_not_seen():
    source = random_bars(700)
    for bar in (300, 302, 304):
        contracts = rolled(source, {bar: -512.5})
        assert np.array_equal(slow_of(contracts), slow_of(source))


def test_every_window_has_filled_before_bar_605():
    first = (slow_of(random_bars(2000)) != 0).argmax(axis=0)
    assert 599 <= first[17] <= 604  # the channel of 120 slow bars, the longest window
    assert first.max() < WARMUP


def test_options_reach_the_slow_series():
    source = random_bars(400)
    assert not slow_of(source, volume_known=False)[:, 22:26].any()
    assert not np.array_equal(slow_of(source, adx_seed="wilder"), slow_of(source))
