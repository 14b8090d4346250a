from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtest.data.bars import DTYPES, Bars, read_bars, schema, write_bars
from backtest.errors import DataError


def make_bars(n: int = 4) -> Bars:
    price = np.linspace(-1.0, 2.0, n)
    return Bars(
        instrument="CL=F",
        time=np.arange(1, n + 1, dtype=np.int64) * 3_600_000_000_000,
        open=price,
        high=price + 1,
        low=price - 1,
        close=price + 0.5,
        volume=np.full(n, 7.0),
        roll=np.arange(n) == 2,
        session=np.zeros(n, np.int32),
        volume_known=False,
    )


def test_bars_come_back_from_parquet_as_they_were(tmp_path: Path) -> None:
    bars = make_bars()
    write_bars(bars, tmp_path / "deep" / "x.parquet")
    back = read_bars(tmp_path / "deep" / "x.parquet")

    for name, dtype in DTYPES.items():
        assert getattr(back, name).dtype == dtype
        np.testing.assert_array_equal(getattr(back, name), getattr(bars, name))
    assert (back.instrument, back.volume_known) == ("CL=F", False)
    assert back.content_hash == bars.content_hash
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.parquet"]  # no temporary left


def test_other_tools_see_utc_times_and_dates(tmp_path: Path) -> None:
    write_bars(make_bars(), tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.remove_metadata() == schema()
    assert str(table["time"][0]) == "1970-01-01 01:00:00+00:00"
    assert table.schema.metadata[b"content_hash"].decode() == make_bars().content_hash


@pytest.mark.parametrize("name", DTYPES)
def test_every_column_moves_the_hash(name: str) -> None:
    bars = make_bars()
    column = getattr(bars, name).copy()
    column[-1] = not column[-1] if name == "roll" else column[-1] + 1
    assert replace(bars, **{name: column}).content_hash != bars.content_hash


def test_prefix_is_the_first_bars() -> None:
    bars = make_bars(6)
    assert len(bars.prefix(4)) == 4
    assert bars.prefix(4).close[-1] == bars.close[3]
    assert bars.prefix(6).content_hash == bars.content_hash


def test_bars_refuse_wrong_types_lengths_and_order() -> None:
    bars = make_bars()
    with pytest.raises(DataError, match="column close is float32"):
        replace(bars, close=bars.close.astype(np.float32))
    with pytest.raises(DataError, match="column volume"):
        replace(bars, volume=bars.volume[:2])
    with pytest.raises(DataError, match="bar 1 is not later"):
        replace(bars, time=bars.time[::-1].copy())


def test_reading_anything_else_names_file_and_cure(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.parquet.*skillwalk ingest"):
        read_bars(tmp_path / "no.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(DataError, match="cannot be read as bars"):
        read_bars(tmp_path / "cut.parquet")
    pq.write_table(pa.table({"time": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="not a bars file"):
        read_bars(tmp_path / "other.parquet")


def test_bars_of_prices_alone() -> None:
    time = np.array(["2020-01-01T23:00", "2020-01-02T00:00", "2020-01-02T01:00"], "datetime64[h]")
    bars = Bars.of_prices("X", time, np.array([1.0, 3.0, 2.0]), np.array([3.0, 2.0, 2.5]))
    assert bars.high.tolist() == [3, 3, 2.5] and bars.low.tolist() == [1, 2, 2]
    # a bar belongs to the day that it lies in: it ends at midnight
    assert np.diff(bars.session).tolist() == [0, 1]
    assert not bars.volume_known and not bars.roll.any()
    assert bars.time[0] == np.datetime64("2020-01-01T23:00", "ns").astype(np.int64)
