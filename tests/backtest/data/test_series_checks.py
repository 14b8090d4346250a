"""Jumps, stale prices, volumes, gaps: what a series shows, through whole small files."""

import pytest

from backtest.errors import DataError
from tests.backtest.data.conftest import ROWS, Ingest, Write, kinds


def days(*prices: float, volume: int = 1) -> list[str]:
    return [f"2024-01-{d:02d},{p},{p},{p},{p},{volume}" for d, p in enumerate(prices, 1)]


def test_jumps(write: Write, take_in: Ingest) -> None:
    split = write(days(100, 102, 51, 52))
    kept = take_in(split)
    assert kinds(kept)["jump"] == (4, 1, "kept")
    with pytest.raises(
        DataError, match=r"row 4: close moves -50\.0% from 102 to 51 without an act"
    ):
        take_in(split, adjustable=True)
    assert len(take_in(split, adjustable=True, jump="keep").bars) == 4
    with pytest.raises(DataError, match="row 4: close moves to 51 and stays there"):
        take_in(split, jump="drop")

    spike = take_in(write(days(100, 101, 1, 2, 102, 300, 103)), jump="drop")
    assert spike.bars.close.tolist() == [100, 101, 102, 103]
    assert kinds(spike)["jump"] == (4, 3, "dropped")


def test_moves_that_are_no_jumps(write: Write, take_in: Ingest) -> None:
    # 40 % is the limit, prices at or below zero have no percentage, a roll is an action
    assert "jump" not in kinds(take_in(write(days(100, 60, 84))))
    assert "jump" not in kinds(take_in(write(days(18.27, -37.63, 10, -5, 5))))
    rows = [f"{row},{int(k == 2)}" for k, row in enumerate(days(100, 102, 51, 52))]
    rolled = take_in(write(rows, header="time,open,high,low,close,volume,roll"), adjustable=True)
    assert rolled.bars.roll.tolist() == [False, False, True, False]
    assert kinds(rolled)["roll"] == (4, 1, "kept")


def test_negative_prices_are_legal(write: Write, take_in: Ingest) -> None:
    path = write(days(18.27, -37.63, 10))
    assert kinds(take_in(path))["negative_price"] == (3, 1, "kept")
    assert take_in(path).bars.close.tolist() == [18.27, -37.63, 10]
    assert len(take_in(path, negative_price="drop").bars) == 2
    with pytest.raises(DataError, match=r"row 3: -37\.63 is the lowest price"):
        take_in(path, negative_price="error")


def test_stale_prices(write: Write, take_in: Ingest) -> None:
    path = write(days(1, 2, 2, 2, 2, 2, 3))
    assert kinds(take_in(path))["stale"] == (4, 4, "kept")
    assert take_in(path, stale="drop").bars.close.tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="runs of 5 or more equal closes: 1, longest 5 from row 3"):
        take_in(path, stale="error")
    assert "stale" not in kinds(take_in(write(days(1, 2, 2, 2, 2, 3))))


def test_volumes(write: Write, take_in: Ingest) -> None:
    path = write([*days(1, 2, 3), "2024-01-04,4,4,4,4,0"])
    kept = take_in(path)
    assert kept.bars.volume_known
    assert kinds(kept)["zero_volume"] == (5, 1, "kept")
    assert len(take_in(path, zero_volume="drop").bars) == 3

    unknown = take_in(write(days(1, 2, 3, volume=0)), zero_volume="drop")
    assert not unknown.bars.volume_known and len(unknown.bars) == 3
    assert kinds(unknown)["volume_unknown"] == (2, 3, "kept")
    absent = take_in(write([r.rsplit(",", 1)[0] for r in ROWS], header="time,open,high,low,close"))
    assert not absent.bars.volume_known
    assert absent.bars.volume.tolist() == [0, 0, 0]
    empty = take_in(write([r.rsplit(",", 1)[0] + "," for r in ROWS]))
    assert not empty.bars.volume_known


def test_gaps_against_the_calendar(write: Write, take_in: Ingest) -> None:
    dates = ("2024-07-01", "2024-07-02", "2024-07-05", "2024-07-08")  # the 4th is a holiday
    path = write([f"{d},1,1,1,1,1" for d in dates])
    assert kinds(take_in(path, calendar="XNYS"))["gap"] == (3, 1, "kept")  # the 3rd
    assert kinds(take_in(path, bar="1d"))["gap"] == (3, 4, "kept")  # and a weekend
    for policy in ("error", "drop"):
        with pytest.raises(DataError, match="row 3: followed by 2024-07-03, a session of XNYS wit"):
            take_in(path, calendar="XNYS", gap=policy)


def test_gaps_inside_a_session(write: Write, take_in: Ingest) -> None:
    minutes = ("09:30", "09:31", "09:34", "15:59")
    first = [f"2024-07-01 {m},1,1,1,1,1" for m in minutes]
    second = [f"2024-07-02 {m},1,1,1,1,1" for m in minutes[:3]]
    result = take_in(
        write(first + second), calendar="XNYS", timezone="America/New_York", bar="1min"
    )
    # 2 + 384 minutes, 2 minutes; the night is none
    assert kinds(result) == {"gap": (3, 3, "kept")}
    message = next(issue.message for issue in result.issues if issue.kind == "gap")
    assert "about 388 bars of 1min missing, longest 06:25:00 after row 4" in message


def test_bars_closer_than_declared_are_counted(write: Write, take_in: Ingest) -> None:
    rows = [f"2024-07-01 {h},1,1,1,1,1" for h in ("10:00", "10:05", "10:06", "10:10")]
    assert kinds(take_in(write(rows), bar="5min"))["irregular"] == (4, 2, "kept")
    with pytest.raises(DataError, match=r"declare instruments\.X\.bar"):
        take_in(write(rows))


def test_a_midday_break_is_no_gap(write: Write, take_in: Ingest) -> None:
    hours = ("09:00", "10:00", "11:00", "12:30", "13:30", "14:30")  # Tokyo rests 11:30 to 12:30
    rows = [f"2024-07-0{d} {h},1,1,1,1,1" for d in (1, 2) for h in hours]
    result = take_in(write(rows), calendar="XTKS", timezone="Asia/Tokyo", bar="30min")
    assert kinds(result)["gap"][1] == 8  # four holes of half an hour a day, not the break
    full = [
        f"2024-07-01 {h:02d}:{m:02d},1,1,1,1,1"
        for h, m in [(9, 0), (9, 30), (10, 0), (10, 30), (11, 0), (12, 30), (13, 0), (13, 30)]
    ]
    result = take_in(write(full), calendar="XTKS", timezone="Asia/Tokyo")
    assert "gap" not in kinds(result)


def test_bars_outside_the_session_are_counted(write: Write, take_in: Ingest) -> None:
    rows = [f"2024-07-01 {h},1,1,1,1,1" for h in ("15:58", "15:59", "16:00", "16:01")]
    result = take_in(write(rows), calendar="XNYS", timezone="America/New_York")
    assert kinds(result) == {"outside_session": (4, 2, "kept")}
