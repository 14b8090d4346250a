"""Target positions from files: what is read, and every way in which a row can be wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from backtest.data.bars import Bars
from backtest.data.targets import TargetFile
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
    found = TargetFile(csv(tmp_path, "bar,a,b\n2,1,-2\n5,0,2\n"), bars, 2.0).read()
    assert (found.first_bar, found.names, found.steps, found.ignored) == (2, ("a", "b"), 4, 0)
    assert found.position.tolist() == [[1, -2], [1, -2], [1, -2], [0, 2]]


def test_the_last_bar_cannot_be_traded(bars, tmp_path):
    found = TargetFile(csv(tmp_path, "bar,target\n6,1\n7,2\n"), bars, 2.0).read()
    assert (found.steps, found.ignored) == (1, 1)
    with pytest.raises(DataError, match="only decision is at the last bar of X, 7"):
        TargetFile(csv(tmp_path, "bar,target\n7,2\n"), bars, 2.0).read()


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_times_are_closes_in_utc(bars, tmp_path, zone):
    time = pa.array(bars.time[[1, 3]], pa.timestamp("ns", zone))
    path = tmp_path / "targets.parquet"
    pq.write_table(pa.table({"time": time, "x": pa.array([1, 2], pa.int8())}), path)
    found = TargetFile(path, bars, 2.0).read()
    assert (found.first_bar, found.position[:, 0].tolist()) == (1, [1, 1, 2])


def test_times_in_text(bars, tmp_path):
    found = TargetFile(csv(tmp_path, "time,x\n2020-01-01 02:00:00,0.5\n"), bars, 2.0).read()
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
        TargetFile(csv(tmp_path, text), bars, 2.0).read()


def test_rows_of_parquet_count_from_one(bars, tmp_path):
    path = tmp_path / "targets.parquet"
    pq.write_table(pa.table({"bar": [1, 2], "a": [0.0, np.nan]}), path)
    with pytest.raises(DataError, match="row 2: a is empty"):
        TargetFile(path, bars, 2.0).read()


LONG = "bar,strategy,position\n2,b,1\n1,a,-2\n4,a,0.5\n3,b,2\n"


def test_long_rows_stand_for_their_strategy(bars, tmp_path):
    """Strategies may be mixed; before its first row one is flat."""
    found = TargetFile(csv(tmp_path, LONG), bars, 2.0)
    assert (found.names, found.first_bar, found.steps, found.ignored) == (("b", "a"), 1, 4, 0)
    assert found.read().position.T.tolist() == [[0, 1, 2, 2], [-2, -2, -2, 0.5]]
    assert found.read(["a"]).position[:, 0].tolist() == [-2, -2, -2, 0.5]


def test_the_last_bar_of_a_long_file(bars, tmp_path):
    found = TargetFile(csv(tmp_path, LONG + "7,a,1\n7,c,1\n"), bars, 2.0)
    assert (found.steps, found.ignored) == (6, 1)
    assert found.read().position.T.tolist() == [
        [0, 1, 2, 2, 2, 2],
        [-2, -2, -2, 0.5, 0.5, 0.5],
        [0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("4,a,1\n", "row 6: bar 4 does not follow bar 4"),
        ("3,b,1\n3,a,1\n", "row 6: bar 3 does not follow bar 3"),
        ("5,a,-2.5\n", "row 6: a = -2.5 units exceeds max_position = 2"),
        ("5,,1\n", "row 6: strategy is empty|holds no strategy"),
        ("5,a,\n", "row 6: position is empty or not finite"),
        ("9,a,1\n", "row 6: bar 9 is not among the 8 bars"),
    ],
)
def test_what_is_wrong_in_a_long_file_names_the_row(bars, tmp_path, rows, message):
    table = pa.csv.read_csv(
        csv(tmp_path, LONG + rows), convert_options=pa.csv.ConvertOptions(strings_can_be_null=True)
    )
    path = tmp_path / "long.parquet"
    pq.write_table(table, path)
    with pytest.raises(DataError, match=message.replace("row 6", "row 5")):
        TargetFile(path, bars, 2.0).read()


def test_strategies_are_read_a_block_at_a_time(bars, tmp_path):
    table = pa.table({"bar": [2, 5], **{f"s{i}": [i % 3, -1.0] for i in range(7)}})
    path = tmp_path / "targets.parquet"
    pq.write_table(table, path)
    found = TargetFile(path, bars, 2.0)
    whole = found.read()
    assert whole.position.flags.c_contiguous and whole.position.dtype == np.float32
    parts = [found.read(found.names[i : i + 3]) for i in (0, 3, 6)]
    assert [part.names for part in parts] == [found.names[:3], found.names[3:6], found.names[6:]]
    assert np.array_equal(np.concatenate([part.position for part in parts], axis=1), whole.position)
    with pytest.raises(DataError, match="holds no strategy s9; it has s0, s1"):
        found.read(["s9"])


def test_other_files_are_refused(bars, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        TargetFile(tmp_path / "none.csv", bars, 2.0).read()
    odd = tmp_path / "targets.json"
    odd.write_text("{}")
    with pytest.raises(DataError, match="unknown format"):
        TargetFile(odd, bars, 2.0).read()
