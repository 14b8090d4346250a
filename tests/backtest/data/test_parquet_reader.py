from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtest.data.bars import read_bars
from backtest.errors import DataError
from tests.backtest.data.conftest import Ingest, Write

HOUR = 3_600_000_000_000


def table(time: Any, **more: Any) -> pa.Table:
    n = len(time)
    price = np.arange(n) + 10.0
    columns = {"time": time, "open": price, "high": price, "low": price, "close": price}
    return pa.table(columns | {"volume": np.ones(n)} | more)


@pytest.fixture
def put(tmp_path: Path) -> Any:
    def write(contents: pa.Table) -> Path:
        pq.write_table(contents, tmp_path / "X.parquet")
        return tmp_path / "X.parquet"

    return write


HOURS = [1577934000 + 3600 * k for k in range(3)]  # 2020-01-02 03:00 UTC and on


@pytest.mark.parametrize(
    ("time", "csv"),
    [
        (pa.array(HOURS, pa.timestamp("s", "UTC")), {}),
        (pa.array(HOURS, pa.timestamp("s")), {}),
        (pa.array(HOURS, pa.timestamp("s")).cast(pa.timestamp("us", "Asia/Tokyo")), {}),
        (pa.array(HOURS, pa.int64()), {}),
        (pa.array(HOURS, pa.int64()), {"date_format": "epoch_s"}),
        (pa.array([1000 * h for h in HOURS], pa.int64()), {"date_format": "epoch_ms"}),
        (pa.array([f"2020-01-02 0{h}:00" for h in (3, 4, 5)]), {}),
        (pa.array([f"2020-01-02 0{h}:00" for h in (3, 4, 5)]).dictionary_encode(), {}),
        (pa.array([f"2020-01-01 2{h}:00" for h in (2, 3)] + ["2020-01-02 00:00"]),
         {"timezone": "America/New_York"}),
    ],
)  # fmt: skip
def test_times_of_every_type(put: Any, take_in: Ingest, time: pa.Array, csv: Any) -> None:
    bars = take_in(put(table(time)), **csv).bars
    assert bars.time.tolist() == [(h + 3600) * 10**9 for h in HOURS]  # stamps are opens


def test_dates_and_the_index_of_a_data_frame(put: Any, take_in: Ingest) -> None:
    days = [date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 3)]
    frame = table(pa.array(days)).rename_columns(
        ["__index_level_0__", "Open", "High", "Low", "Close", "Volume"]
    )
    bars = take_in(put(frame)).bars
    assert bars.time[0] == np.datetime64("2020-01-02", "ns").astype(np.int64)
    assert bars.session.tolist() == [18262, 18263, 18264]


def test_a_bars_file_is_read_as_it_was_written(write: Write, take_in: Ingest) -> None:
    first = take_in(write())
    again = take_in(first.path, name="Y")
    assert again.bars.content_hash == first.bars.content_hash
    assert "assumed_stamp" not in {issue.kind for issue in again.issues}
    assert read_bars(again.path).instrument == "Y"


def test_nulls_are_missing_and_rows_count_from_one(put: Any, take_in: Ingest) -> None:
    holes = table(pa.array([*HOURS[:2], None], pa.timestamp("s")), close=[10.0, None, 12.0])
    with pytest.raises(DataError, match=r"2 problems: row 3: the time is empty.*row 2: close is"):
        take_in(put(holes))


def test_decimals_text_and_roll_flags(put: Any, take_in: Ingest) -> None:
    prices = pa.array(["10.5", "10.5", "10.5"])
    columns = {n: prices.cast(pa.decimal128(9, 2)) for n in ("open", "high", "low")}
    bars = take_in(put(table(HOURS, **columns, close=prices, roll=[False, True, False]))).bars
    assert bars.close.tolist() == bars.open.tolist() == [10.5] * 3
    assert bars.roll.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (table([1.5, 2.5, 3.5]), "time column .double. does not hold times"),
        (table(HOURS, close=pa.array([[1], [2], [3]])), "column close holds list"),
        (table(pa.array([9**15] * 3, pa.timestamp("s"))), "fit nanoseconds"),
    ],
)
def test_types_that_are_no_bars(
    put: Any, take_in: Ingest, contents: pa.Table, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        take_in(put(contents))


def test_damage_inside(put: Any, take_in: Ingest) -> None:
    path = put(table(HOURS))
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"X\.parquet: damaged Parquet file"):
        take_in(path)
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(DataError, match=r"X\.parquet: damaged Parquet file"):
        take_in(path)
