"""Whole files in: every kind of issue under every policy."""

from pathlib import Path

import numpy as np
import pytest

from backtest.data.bars import read_bars
from backtest.data.ingest import bars_path, ingest, issues_path
from backtest.data.issues import read_issues
from backtest.errors import ConfigError, DataError
from backtest.lake import Lake
from backtest.sections import Instrument, Synthetic
from tests.backtest.data.conftest import ROWS, Ingest, Write, kinds

# One defect in row 3 of a file of three days; the other rows are sound.
ROW_DEFECTS = {
    "not_finite": ("2024-01-02,11,,10,12,200", "row 3: high is empty or NaN"),
    "no_time": (",11,13,10,12,200", "row 3: the time is empty"),
    "unreadable": ("2024-01-02,11,13,10,n.v.,200", "row 3: close 'n.v.' is not a number"),
    "all_zero": ("2024-01-02,0,0,0,0,0", "row 3: all prices are 0"),
    "no_volume": ("2024-01-02,11,13,10,12,", "row 3: volume is empty or NaN"),
    "negative_volume": ("2024-01-02,11,13,10,12,-5", "row 3: volume -5 is negative"),
    "ohlc_inconsistent": ("2024-01-02,11,11.5,10,12,200", "row 3: high 11.5 is below close 12"),
}
SETTING = {
    "no_time": "not_finite",
    "unreadable": "not_finite",
    "no_volume": "not_finite",
    "negative_volume": "ohlc_inconsistent",
}
UNKEEPABLE = ("not_finite", "no_time", "unreadable")


@pytest.mark.parametrize("kind", ROW_DEFECTS)
def test_row_defects_are_errors_unless_declared(write: Write, take_in: Ingest, kind: str) -> None:
    defect, message = ROW_DEFECTS[kind]
    path = write([ROWS[0], defect, ROWS[2], "2024-01-04,13,15,12,14,400"])
    setting = SETTING.get(kind, kind)

    with pytest.raises(DataError) as error:
        take_in(path)
    assert message in str(error.value)
    assert str(path) in str(error.value) and f"instruments.X.issues.{setting}" in str(error.value)

    dropped = take_in(path, **{setting: "drop"})
    assert dropped.bars.close.tolist() == [11, 13, 14]
    assert kinds(dropped)[kind] == (3, 1, "dropped")

    if kind in UNKEEPABLE:
        with pytest.raises(DataError, match="row 3"):
            take_in(path, **{setting: "keep"})
    else:
        kept = take_in(path, **{setting: "keep"})
        assert len(kept.bars) == 4
        assert kinds(kept)[kind][:2] == (3, 1)
        assert kept.bars.volume.min() >= 0 and np.isfinite(kept.bars.volume).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2024-01-02,11,13,10,12", "row 3: 5 columns instead of 6"),
        ("2024-01-02,11,inf,10,12,1", "row 3: high is inf"),
        ("2024-01-02,9.5,13,10,12,1", "row 3: low 10 is above open 9.5"),
        ("2024-01-02,5,4,6,5,1", "row 3: high 4 is below low 6"),
        ("2024-01-99,11,13,10,12,1", "row 3: '2024-01-99' is not a time"),
    ],
)
def test_more_wrong_rows(write: Write, take_in: Ingest, row: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        take_in(write([ROWS[0], row, ROWS[2]]))
    assert message in str(error.value)


def test_three_defects_give_three_sentences_and_no_file(
    write: Write, take_in: Ingest, tmp_path: Path
) -> None:
    path = write(
        [
            *ROWS,
            "2024-01-04,12,14,11,nan,300",
            "2024-01-05,12,11,11,13,300",
            "2024-01-03,12,14,11,13,301",
        ]
    )
    with pytest.raises(DataError) as error:
        take_in(path, unsorted="keep")
    assert str(error.value) == (
        f"{path}: 3 problems: "
        "row 5: close is empty or NaN; correct the file or set "
        'instruments.X.issues.not_finite = "drop". '
        "row 6: high 11 is below close 13; correct the file or set "
        'instruments.X.issues.ohlc_inconsistent = "drop" or "keep" (kept). '
        "row 7: 2024-01-03 has the same time but differs from row 4; remove all rows but one of a "
        'time, or set instruments.X.issues.duplicate_conflicting = "drop".'
    )
    assert not (tmp_path / "lake").exists()


def test_unsorted(write: Write, take_in: Ingest) -> None:
    path = write([ROWS[1], ROWS[0], ROWS[2]])  # 2, 1, 3 January
    with pytest.raises(DataError, match="row 3: time steps back: 2024-01-01 follows 2024-01-02"):
        take_in(path)
    assert take_in(path, unsorted="keep").bars.close.tolist() == [11, 12, 13]
    assert kinds(take_in(path, unsorted="keep"))["unsorted"] == (3, 1, "sorted")
    assert take_in(path, unsorted="drop").bars.close.tolist() == [12, 13]
    with pytest.raises(DataError, match="row 3: rows are in descending order"):
        take_in(write([*ROWS[::-1], *ROWS[:0]]))


def test_duplicates(write: Write, take_in: Ingest) -> None:
    same = take_in(write([ROWS[0], ROWS[1], ROWS[1], ROWS[2]]))
    assert kinds(same)["duplicate_identical"] == (4, 1, "dropped")
    assert same.bars.close.tolist() == [11, 12, 13]
    for policy in ("error", "keep"):  # two bars of one time cannot be kept
        with pytest.raises(DataError, match="row 4: 2024-01-02 repeats row 3"):
            take_in(write([ROWS[0], ROWS[1], ROWS[1], ROWS[2]]), duplicate_identical=policy)

    other = write([ROWS[0], ROWS[1], "2024-01-02,11,13,10,12.5,200", ROWS[2]])
    with pytest.raises(DataError, match="row 4: 2024-01-02 has the same time but differs"):
        take_in(other)
    first = take_in(other, duplicate_conflicting="drop")
    assert first.bars.close.tolist() == [11, 12, 13]
    assert kinds(first)["duplicate_conflicting"] == (4, 1, "dropped")


def test_assumptions_are_rows_and_lines(write: Write, take_in: Ingest) -> None:
    rows = [f"2024-07-01 {h:02d}:00,1,1,1,1,1" for h in (1, 2, 3)]
    result = take_in(write(rows))
    assumed = [issue.kind for issue in result.issues if issue.action == "assumed"]
    assert assumed == [
        *("assumed_columns", "assumed_timezone", "assumed_bar", "assumed_calendar"),
        "assumed_stamp",
    ]
    assert len(result.assumptions) == 5
    declared = take_in(
        write(rows),
        bar="1h",
        calendar="24/7",
        stamp="open",
        timezone="UTC",
        columns={name: name for name in ("time", "open", "high", "low", "close", "volume")},
    )
    assert declared.assumptions == ()
    assert declared.bars.content_hash == result.bars.content_hash


def test_declared_layout(write: Write, take_in: Ingest) -> None:
    rows = ["01.02.2024 10:00;1,5;1,25;2,5;1;7", "01.02.2024 11:00;1,5;1,25;2,5;1;7"]
    layout = dict(
        delimiter=";",
        decimal=",",
        header=False,
        columns={"time": 0, "close": 1, "open": 2, "high": 3, "low": 4, "volume": 5},
        date_format="%d.%m.%Y %H:%M",
    )
    bars = take_in(write(rows, header=None), **layout).bars
    assert (bars.open[0], bars.high[0], bars.low[0], bars.close[0]) == (1.25, 2.5, 1.0, 1.5)
    assert str(np.datetime64(int(bars.time[0]), "ns"))[:16] == "2024-02-01T11:00"
    layout["date_format"] = "%m/%d/%Y %H:%M"
    with pytest.raises(DataError, match=r"row 1: '01\.02\.2024 10:00' is not a time"):
        take_in(write(rows, header=None), **layout)


def test_dates_that_may_be_read_twice(write: Write, take_in: Ingest) -> None:
    rows = [row.replace("2024-01-", "1/").replace(",", "/2024,", 1) for row in ROWS]
    with pytest.raises(DataError, match=r"row 2: '1/01/2024' may be day/month or month/day"):
        take_in(write(rows))
    assert len(take_in(write(rows), date_format="%m/%d/%Y").bars) == 3
    result = take_in(write([*rows, "1/13/2024,1,1,1,1,1"]), bar="1d")
    assert "assumed_date_format" in {issue.kind for issue in result.issues}
    with pytest.raises(DataError, match="row 2: times such as 'Monday' are written in no form"):
        take_in(write(["Monday,1,1,1,1,1"]))


def test_date_and_time_in_two_columns(write: Write, take_in: Ingest) -> None:
    rows = [f"2024.01.01,{h:02d}:00,1,1,1,1,1" for h in (1, 2, 3)]
    result = take_in(write(rows, header="<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>"))
    assert str(np.datetime64(int(result.bars.time[0]), "ns"))[:16] == "2024-01-01T02:00"


def test_stacked_instruments_are_refused_or_chosen(write: Write, take_in: Ingest) -> None:
    rows = [f"{s},{row}" for row in ROWS for s in ("AAPL", "MSFT")]
    path = write(rows, header="Ticker,time,open,high,low,close,volume")
    with pytest.raises(DataError, match=r"2 instruments .*\(AAPL, MSFT\); to choose one"):
        take_in(path)
    chosen = take_in(path, name="MSFT", columns={"symbol": "Ticker"})
    assert chosen.bars.close.tolist() == [11, 12, 13]
    with pytest.raises(DataError, match="no row has the symbol 'X', only AAPL, MSFT"):
        take_in(path, columns={"symbol": "Ticker"})
    alone = write([r for r in rows if r.startswith("AAPL")], "Ticker,time,open,high,low,close,vol")
    assert len(take_in(alone).bars) == 3


def test_defects_of_a_chosen_instrument_name_its_rows(write: Write, take_in: Ingest) -> None:
    rows = [f"{s},{row}" for row in ROWS for s in ("A", "B")]
    rows[3] = "B,2024-01-02,11,13,10,x,200"
    path = write(rows, header="symbol,time,open,high,low,close,volume")
    with pytest.raises(DataError, match="row 5: close 'x' is not a number"):
        take_in(path, name="B", columns={"symbol": "symbol"})
    assert len(take_in(path, name="A", columns={"symbol": "symbol"}).bars) == 3


def test_blank_rows_are_skipped_and_reported(write: Write, take_in: Ingest) -> None:
    result = take_in(write([ROWS[0], "", ROWS[1], ",,,,,", ROWS[2], ""]))
    assert len(result.bars) == 3
    assert kinds(result)["blank_row"] == (0, 0, "kept")


def test_too_much_damage_is_given_up(
    write: Write, take_in: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backtest.data.blocks.MAX_UNREADABLE", 2)
    with pytest.raises(DataError, match=r"more than 2 cells cannot be read, .* check instruments"):
        take_in(write([row + "x" for row in ROWS]), not_finite="drop")


def test_policies_that_leave_nothing(write: Write, take_in: Ingest) -> None:
    with pytest.raises(DataError, match="leave no row"):
        take_in(write([row.replace(",1", ",x") for row in ROWS]), not_finite="drop")
    with pytest.raises(DataError, match="leave no row"):
        take_in(
            write([row.replace(",9,", ",-9,") for row in ROWS[:1]]), bar="1d", negative_price="drop"
        )


def test_bars_and_issues_lie_side_by_side(write: Write, take_in: Ingest, tmp_path: Path) -> None:
    result = take_in(write([*ROWS, ROWS[2]]))
    lake = tmp_path / "lake"
    assert result.path == bars_path(lake, "X") == lake / "bars" / "X.parquet"
    assert read_bars(result.path).content_hash == result.bars.content_hash
    assert read_issues(issues_path(lake, "X")) == result.issues
    assert sorted(p.name for p in (lake / "bars").iterdir()) == ["X.issues.parquet", "X.parquet"]
    keys = [(i.instrument, i.source, i.kind, i.first_row) for i in result.issues]
    assert len(set(keys)) == len(keys)  # the key of the table data_issue


def test_a_failed_rerun_leaves_the_last_good_file(write: Write, take_in: Ingest) -> None:
    good = take_in(write())
    content = good.path.read_bytes()
    with pytest.raises(DataError):
        take_in(write(["2024-01-01,1,0,1,1,1"]))
    assert good.path.read_bytes() == content


def test_names_and_sources_that_cannot_be(take_in: Ingest, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"instruments\.X\.source is empty"):
        take_in("")
    for name in ("../X", ".X", "X.issues", ""):
        with pytest.raises(ConfigError, match="becomes a file name"):
            take_in("synthetic", name=name)
    with pytest.raises(DataError, match="no such file"):
        take_in(tmp_path / "no.csv")


def test_a_name_with_signs_is_found_again_in_the_lake(tmp_path: Path) -> None:
    settings = Instrument(source="synthetic", bar="1h", synthetic=Synthetic(bars=300))
    written = ingest("ES=F", settings, tmp_path).path
    assert written == Lake(tmp_path).bars("ES=F")
    assert written.is_file()
