from dataclasses import replace

import numpy as np
import pytest

from backtest.errors import DataError
from backtest.features.names import FEATURES, SLOW_FEATURES
from backtest.features.table import SERIES, compute, feature_hash, joined
from tests.backtest.features.example import random_bars, rolled

BARS = rolled(random_bars(900), {450: 20.0})
TABLE = compute(BARS)


def test_a_table_holds_bars_and_features():
    assert (TABLE.first_bar, TABLE.stop, len(TABLE)) == (0, 900, 900)
    assert np.array_equal(TABLE.close, BARS.close)
    assert np.array_equal(TABLE["adx"], TABLE.market[:, 40])
    assert np.array_equal(TABLE["slow_cusum"], TABLE.slow[:, 41])
    assert TABLE["bar"].tolist() == list(range(900))
    assert TABLE.bars_hash == BARS.content_hash
    with pytest.raises(KeyError):
        TABLE["rsi"]


def test_a_prefix_of_the_bars_gives_a_prefix_of_every_column():
    for t in (1, 4, 5, 29, 123, 449, 450, 451, 606, 899):
        part = compute(BARS.prefix(t))
        for name in (*SERIES, *FEATURES, *SLOW_FEATURES):
            assert np.array_equal(part[name], TABLE[name][:t]), (name, t)


def test_slices_keep_the_global_bar():
    part = TABLE.slice(600, 700).slice(650, 660)
    assert (part.first_bar, len(part)) == (650, 10)
    assert np.array_equal(part.market, TABLE.market[650:660])
    assert part["bar"].tolist() == list(range(650, 660))
    assert TABLE.slice(600, 700).rows(650, 660).shape == (10, 84)
    assert np.array_equal(TABLE.rows(3, 9)[:, 42:], TABLE.slow[3:9])
    with pytest.raises(DataError, match=r"bars \[650, 701\) are not within \[600, 700\)"):
        TABLE.slice(600, 700).slice(650, 701)


def test_windows_join_to_the_whole():
    parts = [TABLE.slice(0, 300), TABLE.slice(300, 301), TABLE.slice(301, 900)]
    assert feature_hash(joined(parts)) == feature_hash(TABLE)
    with pytest.raises(DataError, match="ends before bar 300, the next one starts at bar 301"):
        joined([parts[0], parts[2]])
    other = compute(BARS, "wilder").slice(300, 301)
    with pytest.raises(DataError, match="other bars or settings"):
        joined([parts[0], other])
    with pytest.raises(DataError, match="nothing to join"):
        joined([])


def test_the_hash_sees_values_axis_and_settings():
    hashes = {
        feature_hash(TABLE),
        feature_hash(TABLE.slice(0, 899)),
        feature_hash(TABLE.slice(1, 900)),
        feature_hash(compute(BARS, "wilder")),
    }
    assert len(hashes) == 4
    assert feature_hash(compute(BARS)) == feature_hash(TABLE)


def test_columns_of_another_length_are_refused():
    with pytest.raises(DataError, match="close has not 900 rows"):
        replace(TABLE, close=TABLE.close[1:])
    with pytest.raises(DataError, match="slow has not the shape"):
        replace(TABLE, slow=TABLE.slow[:, 1:])
