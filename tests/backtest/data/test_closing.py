"""Stamps to closes, through whole small files."""

import time

import numpy as np
import pytest

from backtest.errors import ConfigError, DataError
from tests.backtest.data.conftest import Ingest, Write


def bar(stamp: str, price: int = 10) -> str:
    return f"{stamp},{price},{price},{price},{price},1"


def closes(result: object) -> list[str]:
    bars = result.bars  # type: ignore[attr-defined]
    return [str(np.datetime64(int(t), "ns"))[:16] for t in bars.time]


def sessions(result: object) -> list[str]:
    bars = result.bars  # type: ignore[attr-defined]
    return [str(np.datetime64(int(s), "D")) for s in bars.session]


DATES = [bar("2024-07-01"), bar("2024-07-02"), bar("2024-07-03")]


def test_dates_close_with_their_session(write: Write, take_in: Ingest) -> None:
    always = take_in(write(DATES))
    assert closes(always) == ["2024-07-02T00:00", "2024-07-03T00:00", "2024-07-04T00:00"]
    assert sessions(always) == ["2024-07-01", "2024-07-02", "2024-07-03"]
    nyse = take_in(write(DATES), calendar="XNYS")  # the 3rd is a half day
    assert closes(nyse) == ["2024-07-01T20:00", "2024-07-02T20:00", "2024-07-03T17:00"]
    assert sessions(nyse) == sessions(always)


def test_midnights_are_dates_unless_declared_to_be_closes(write: Write, take_in: Ingest) -> None:
    path = write([bar(f"2024-07-0{d} 00:00:00") for d in (1, 2, 3)])
    assert closes(take_in(path)) == ["2024-07-02T00:00", "2024-07-03T00:00", "2024-07-04T00:00"]
    assert "midnight_stamps" in {issue.kind for issue in take_in(path).issues}
    assert closes(take_in(path, stamp="close"))[0] == "2024-07-01T00:00"
    assert sessions(take_in(path, stamp="close"))[0] == "2024-06-30"
    assert sessions(take_in(path, stamp="close", calendar="XNYS"))[0] == "2024-07-01"


def test_midnights_of_the_exchange_with_an_offset_are_dates(write: Write, take_in: Ingest) -> None:
    path = write([bar(f"2024-07-0{d} 00:00:00-04:00") for d in (1, 2, 3)])
    assert closes(take_in(path, calendar="XNYS"))[0] == "2024-07-01T20:00"
    assert sessions(take_in(path, timezone="America/New_York"))[0] == "2024-07-01"


@pytest.mark.parametrize("clock", ["16:00", "09:30"])
def test_daily_times_of_day_are_merged_by_session_date(
    write: Write, take_in: Ingest, clock: str
) -> None:
    path = write([bar(f"2024-07-0{d} {clock}") for d in (1, 2, 3)])
    result = take_in(path, calendar="XNYS", timezone="America/New_York")
    assert sessions(result) == ["2024-07-01", "2024-07-02", "2024-07-03"]
    assert closes(result)[0] == "2024-07-01T20:00"


def test_times_name_the_open_unless_declared(write: Write, take_in: Ingest) -> None:
    path = write([bar(f"2024-07-01 {h:02d}:00") for h in (21, 22, 23)])
    assert closes(take_in(path)) == ["2024-07-01T22:00", "2024-07-01T23:00", "2024-07-02T00:00"]
    assert sessions(take_in(path)) == ["2024-07-01"] * 3  # midnight belongs to the day before
    assert closes(take_in(path, stamp="close"))[0] == "2024-07-01T21:00"


def test_the_last_bar_ends_with_its_session(write: Write, take_in: Ingest) -> None:
    path = write([bar(f"2024-07-01 {h}:30") for h in (13, 14, 15, 16, 17, 18, 19)])
    result = take_in(path, calendar="XNYS")  # 9:30 to 16:00 in New York
    assert closes(result)[-2:] == ["2024-07-01T19:30", "2024-07-01T20:00"]
    assert not {"outside_session", "gap"} & {issue.kind for issue in result.issues}
    assert closes(take_in(path))[-1] == "2024-07-01T20:30"  # around the clock nothing stops


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [("open", ["2024-01-31", "2024-02-29"]), ("close", ["2024-01-01", "2024-02-01"])],
)
def test_months_are_declared(
    write: Write, take_in: Ingest, stamp: str, expected: list[str]
) -> None:
    path = write([bar("2024-01-01"), bar("2024-02-01")])
    assert sessions(take_in(path, bar="1mo", stamp=stamp)) == expected
    with pytest.raises(DataError, match=r"declare instruments\.X\.bar"):
        take_in(write([bar(f"2024-0{m}-01") for m in range(1, 8)]))


def test_month_ends_without_a_session_close_with_the_last_one(
    write: Write, take_in: Ingest
) -> None:
    path = write([bar("2024-02-29"), bar("2024-03-31")])  # a Thursday; Easter Sunday
    result = take_in(path, bar="1mo", calendar="XNYS")
    assert closes(result) == ["2024-02-29T21:00", "2024-03-28T20:00"]


def test_local_times_that_never_happened_or_happened_twice(write: Write, take_in: Ingest) -> None:
    spring = write([bar(f"2024-03-10 {h:02d}:00") for h in (0, 1, 2, 3)])
    with pytest.raises(DataError, match=r"row 4: this time of day never happened in America/New"):
        take_in(spring, timezone="America/New_York")
    assert len(take_in(spring).bars) == 4
    autumn = write([bar(f"2024-11-03 {h:02d}:00") for h in (0, 1, 1, 2)])
    with pytest.raises(DataError, match=r"row 3: .* happened twice .*\(2 rows: 3-4\)") as error:
        take_in(autumn, timezone="America/New_York")
    assert "problems" not in str(error.value)  # no second complaint about duplicates
    with pytest.raises(DataError, match="row 2: this time"):
        take_in(write([bar("2024-11-03 01:30")]), timezone="America/New_York")
    with pytest.raises(ConfigError, match="no such time zone"):
        take_in(autumn, timezone="New York")


def test_offsets_on_some_rows_only(write: Write, take_in: Ingest) -> None:
    path = write([bar("2024-07-01 10:00Z"), bar("2024-07-01 11:00"), bar("2024-07-01 12:00Z")])
    with pytest.raises(DataError, match="row 3: the time has no UTC offset, row 2 has one"):
        take_in(path)


def test_declarations_against_the_data(write: Write, take_in: Ingest) -> None:
    with pytest.raises(DataError, match=r"bar = 1h, but no time has a time of day"):
        take_in(write(DATES), bar="1h")
    twice = write([bar("2024-07-01 14:00"), bar("2024-07-01 15:00"), bar("2024-07-02 14:00")])
    with pytest.raises(DataError, match=r"row 3: closes no later than row 2, both in session 2024"):
        take_in(twice, bar="1d", calendar="XNYS")


def test_the_hosts_time_zone_changes_nothing(
    write: Write, take_in: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write([bar(f"2024-07-01 {h}:00") for h in (14, 15, 16)])
    hashes = set()
    for host in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", host)
        time.tzset()
        for settings in ({}, {"timezone": "America/New_York", "calendar": "XNYS"}):
            hashes.add((str(settings), take_in(path, **settings).bars.content_hash))
        hashes.add(("synthetic", take_in("synthetic").bars.content_hash))
    monkeypatch.undo()
    time.tzset()
    assert len(hashes) == 3
