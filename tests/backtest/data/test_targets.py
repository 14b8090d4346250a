"""Target positions from files: what is read, and every way in which a row can be wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtest.data.bars import Bars
from backtest.data.targets import read_targets
from backtest.errors import DataError

HOUR = 3_600_000_000_000
START = 1_577_840_400_000_000_000  # 2020-01-01 01:00 UTC


@pytest.fixture
def bars():
    n = 8
    price = np.full(n, 100.0)
    time = START + np.arange(n) * HOUR
    session = np.full(n, 18262, np.int32)
    return Bars("X", time, price, price, price, price, price, np.zeros(n, bool), session)


def csv(tmp_path, text):
    path = tmp_path / "targets.csv"
    path.write_text(text)
    return path


def test_a_target_stands_until_the_next_row(bars, tmp_path):
    found = read_targets(csv(tmp_path, "bar,a,b\n2,1,-2\n5,0,2\n"), bars, 2.0)
    assert (found.first_bar, found.names, len(found), found.ignored) == (2, ("a", "b"), 4, 0)
    assert found.position.tolist() == [[1, -2], [1, -2], [1, -2], [0, 2]]


def test_the_last_bar_cannot_be_traded(bars, tmp_path):
    found = read_targets(csv(tmp_path, "bar,target\n6,1\n7,2\n"), bars, 2.0)
    assert (len(found), found.ignored) == (1, 1)
    with pytest.raises(DataError, match="only decision is at the last bar of X, 7"):
        read_targets(csv(tmp_path, "bar,target\n7,2\n"), bars, 2.0)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_times_are_closes_in_utc(bars, tmp_path, zone):
    time = pa.array(bars.time[[1, 3]], pa.timestamp("ns", zone))
    path = tmp_path / "targets.parquet"
    pq.write_table(pa.table({"time": time, "x": pa.array([1, 2], pa.int8())}), path)
    found = read_targets(path, bars, 2.0)
    assert (found.first_bar, found.position[:, 0].tolist()) == (1, [1, 1, 2])


def test_times_in_text(bars, tmp_path):
    found = read_targets(csv(tmp_path, "time,x\n2020-01-01 02:00:00,0.5\n"), bars, 2.0)
    assert (found.first_bar, found.position.tolist()) == (1, [[0.5]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bar,time,a\n1,2020-01-01,1\n", "one column, bar or time"),
        ("when,a\n1,1\n", "has the columns when, a; name the decision bar"),
        ("bar\n1\n", "no column of target positions beside bar"),
        ("bar,a,a\n1,1,1\n", "two columns have the same name"),
        ("bar,a\n", "holds no row"),
        ("bar,a\n1,1\n,2\n", "row 3: bar is empty"),
        ("bar,a\n1.5,1\n", "row 2: bar is double; give whole numbers"),
        ("bar,a\n1,1\n8,1\n", "row 3: bar 8 is not among the 8 bars of X"),
        ("bar,a\n-1,1\n", "row 2: bar -1 is not among"),
        ("bar,a\n3,1\n2,1\n", "row 3: bar 2 does not follow bar 3"),
        ("bar,a\n3,1\n3,1\n", "row 3: bar 3 does not follow bar 3"),
        ("bar,a\n3,1\n4,\n", "row 3: a is empty or not finite"),
        ("bar,a\n3,nan\n", "row 2: a is empty or not finite"),
        ("bar,a\n3,inf\n", "row 2: a is empty or not finite"),
        ("bar,a\n3,long\n", "row 2: column a is string; target positions are numbers"),
        ("bar,a,b\n3,1,2\n4,1,-2.5\n", r"row 3: b = -2.5 units exceeds max_position = 2"),
        ("time,a\n2020-01-01 02:30:00,1\n", "row 2: no bar of X closes at 2020-01-01T02:30:00Z"),
        ("time,a\nsoon,1\n", "row 2: time is string; give UTC times"),
        ("bar,a\n1,2,3\n", "cannot be read as a table"),
    ],
)
def test_what_is_wrong_names_the_row(bars, tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_targets(csv(tmp_path, text), bars, 2.0)


def test_rows_of_parquet_count_from_one(bars, tmp_path):
    path = tmp_path / "targets.parquet"
    pq.write_table(pa.table({"bar": [1, 2], "a": [0.0, np.nan]}), path)
    with pytest.raises(DataError, match="row 2: a is empty"):
        read_targets(path, bars, 2.0)


def test_other_files_are_refused(bars, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_targets(tmp_path / "none.csv", bars, 2.0)
    odd = tmp_path / "targets.json"
    odd.write_text("{}")
    with pytest.raises(DataError, match="unknown format"):
        read_targets(odd, bars, 2.0)
