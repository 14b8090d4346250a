import csv
import json

import numpy as np
import pytest

from backtest.errors import ConfigError, DataError
from backtest.features import cusum_events
from backtest.features.cusum import LANE, cusum_filter


def plain(x, drift, threshold):
    """The definition, bar by bar."""
    up = down = 0.0
    level, event = [], []
    for move, h in zip(x, np.broadcast_to(threshold, x.shape), strict=True):
        up = max(0.0, up + move - drift)
        down = min(0.0, down + move + drift)
        level.append(max(up, -down))
        if down < -h:
            event.append(-1)
            down = 0.0
        elif up > h:
            event.append(1)
            up = 0.0
        else:
            event.append(0)
    return level, event


def test_levels_by_hand():
    # S+ : 1.5, 3.5, 5.5 > 4 -> event, reset; then 0.5 ; S-: 0, 0, 0, 0, -3, -5.5 -> event
    x = np.array([2.0, 2.5, 2.5, 1.0, -3.5, -3.0, 0.0])
    level, event = cusum_filter(x, 0.5, 4.0)
    assert level.tolist() == [1.5, 3.5, 5.5, 0.5, 3.0, 5.5, 0.0]
    assert event.tolist() == [0, 0, 1, 0, 0, -1, 0]
    assert event.dtype == np.int8


def test_the_threshold_itself_is_no_event():
    assert not cusum_filter(np.array([4.5]), 0.5, 4.0).event.any()


RANDOM = np.random.default_rng(0)
SERIES = {
    "noise": (RANDOM.normal(size=30_000), 0.5, 4.0),
    "no drift": (RANDOM.normal(size=30_000), 0.0, 30.0),
    "ramp": (np.full(20_000, 0.83), 0.5, 4.0),
    "jumps": (RANDOM.standard_t(2, size=30_000), 0.5, 4.0),
    "a threshold a bar": (RANDOM.normal(size=30_000), 0.0, RANDOM.uniform(0.5, 9, 30_000)),
    "flat": (np.zeros(5_000), 0.5, 4.0),
    "ends inside a lane": (RANDOM.normal(size=3 * LANE + 17), 0.5, 4.0),
}


@pytest.mark.parametrize("name", SERIES)
def test_lanes_give_the_bits_of_the_plain_loop(name):
    x, drift, threshold = SERIES[name]
    level, event = plain(x, drift, threshold)
    ours = cusum_filter(x, drift, threshold)
    assert np.array_equal(ours.level, level)
    assert np.array_equal(ours.event, event)


def test_state_is_carried_over_the_blocks_of_lanes(monkeypatch):
    monkeypatch.setattr("backtest.features.cusum.LANES", 3)
    x = np.tile([0.9, -0.2, 0.4, 0.1, 0.3], 2 * LANE)
    level, event = plain(x, 0.25, 4.0)
    ours = cusum_filter(x, 0.25, 4.0)
    assert np.array_equal(ours.level, level)
    assert np.array_equal(ours.event, event)


def dollar_bars(shared_data):
    with (shared_data / "cusum_openquant" / "dollar_bar_sample.csv").open() as file:
        rows = list(csv.DictReader(file))
    times = [row["date_time"].replace(" ", "T") for row in rows]
    return np.array(times), np.array([float(row["close"]) for row in rows])


def stamps(times):
    return [np.datetime64(time, "ms") for time in times]


def test_recorded_events_of_the_original_filter(shared_data):
    times, close = dollar_bars(shared_data)
    recorded = json.loads((shared_data / "cusum_openquant" / "events.json").read_text())
    counts = {}
    for threshold in ("0.005", "0.007", "0.01", "0.015", "0.02", "0.03", "0.04"):
        events = cusum_events(close, float(threshold))
        counts[threshold] = len(events)
        oracle = recorded["cusum"][f"{threshold}_timestamps"]
        assert stamps(times[events]) == stamps(oracle)
    assert list(counts.values()) == [100, 63, 37, 17, 9, 5, 2]
    dynamic = cusum_events(close, close * 1e-5)
    assert stamps(times[dynamic]) == stamps(recorded["cusum_dynamic"]["timestamps"])


def generated_closes(shared_data):
    import pyarrow.parquet as pq

    folder = shared_data / "oracles_generated"
    return [
        pq.read_table(folder / f"talib_adx14_{name}.parquet")["close"].to_numpy()
        for name in ("ES201312_1m", "eurusd_1h_2017", "sp500_daily")
    ]


def test_recorded_events_of_mlfinpy(shared_data):
    path = shared_data / "oracles_generated" / "mlfinpy_cusum_events.json"
    recorded = json.loads(path.read_text())
    closes = {len(close): close for close in generated_closes(shared_data)}
    lists = 0
    for series in recorded.values():
        close = closes[series["rows"]]  # the three series differ in length
        for threshold, events in series["events"].items():
            ours = cusum_events(close, float(threshold))
            assert ours.tolist() == events["row_index_0_based"]
            assert len(ours) == events["count"]
            lists += 1
    assert lists == 9


FALL = np.array([20, 19, 18.3, -37.6, 10, 12.3])  # WTI, May 2020


def test_a_negative_price_is_refused_in_log_mode_and_fires_in_points():
    with pytest.raises(DataError, match=r'close = -37.6 at row 3 .*mode="difference"'):
        cusum_events(FALL, 0.05)
    assert 3 in cusum_events(FALL, 1.0, mode="difference")
    # S- = -1, -1.7 -> event at 2; -55.9 at 3; S+ = 47.6 at 4; 2.3 at 5
    assert cusum_events(FALL, 1.5, mode="difference").tolist() == [2, 3, 4, 5]


def test_bad_arguments():
    with pytest.raises(DataError, match="close = nan at row 1"):
        cusum_events([1.0, np.nan], 0.1)
    with pytest.raises(DataError, match="threshold = 0 at row 0"):
        cusum_events([1.0, 2.0], 0.0)
    with pytest.raises(DataError, match="threshold = nan at row 1"):
        cusum_events([1.0, 2.0], [0.1, np.nan])
    with pytest.raises(ConfigError, match="mode 'percent'"):
        cusum_events([1.0, 2.0], 0.1, mode="percent")
    with pytest.raises(DataError, match="threshold has shape"):
        cusum_events([1.0, 2.0], [0.1, 0.1, 0.1])
    assert cusum_events([1.0], 0.1).tolist() == []
    assert cusum_events([], 0.1).tolist() == []
