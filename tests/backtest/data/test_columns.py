from collections.abc import Mapping

import pytest

from backtest.data.columns import match
from backtest.data.issues import Findings
from backtest.errors import DataError

OHLC = ["Open", "High", "Low", "Close"]


def places(
    headers: list[str], declared: Mapping[str, str | int] | None = None, *, named: bool = True
) -> dict[str, int]:
    return dict(match(headers, declared, Findings("X", "x.csv"), named=named).place)


def test_known_headers_in_any_case_and_order() -> None:
    assert places(["CLOSE", "low", "High", "o", "Vol", "timestamp_utc"]) == {
        "close": 0, "low": 1, "high": 2, "open": 3, "volume": 4, "time": 5
    }  # fmt: skip
    assert places(["<DATE>", "<TIME>", "<OPEN>", "<HIGH>", "<LOW>", "<CLOSE>", "<VOL>"]) == {
        "date": 0, "time": 1, "open": 2, "high": 3, "low": 4, "close": 5, "volume": 6
    }  # fmt: skip


def test_an_unnamed_first_column_is_the_time_if_no_other_is() -> None:
    assert places(["", *OHLC])["time"] == 0
    assert places(["__index_level_0__", *OHLC])["time"] == 0
    assert places(["", "Date", *OHLC])["time"] == 1


def test_declared_columns_win_by_name_or_place() -> None:
    place = places(["when", "a", *OHLC], {"time": "when", "open": 1})
    assert (place["time"], place["open"], place["high"]) == (0, 1, 3)
    assert places([""] * 5, dict(time=0, open=1, close=2, high=3, low=4), named=False) == {
        "time": 0, "open": 1, "close": 2, "high": 3, "low": 4
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "declared", "message"),
    [
        (["Date", *OHLC, "Open"], None, "'Open' more than once"),
        (["Date", "Open", "High"], None, "no column for low, close"),
        (["Date", "timestamp", *OHLC], None, "'Date' and 'timestamp' may each be the time"),
        (["Date", *OHLC, "Last"], None, "'Close' and 'Last' may each be the close"),
        (["Date", *OHLC], {"time": "Day"}, "csv.columns.time = 'Day': row 1 has no such header"),
        (["Date", *OHLC], {"time": 7}, "csv.columns.time = 7: the file has 5 columns"),
        (["Date", *OHLC], {"price": "Open"}, "csv.columns.price: unknown column"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    headers: list[str], declared: Mapping[str, str | int] | None, message: str
) -> None:
    with pytest.raises(DataError, match="x.csv: .*" + message):
        places(headers, declared)


def test_names_need_a_header_and_several_faults_come_together() -> None:
    with pytest.raises(DataError, match="without a header give its place"):
        places([""] * 5, {"time": "Date"}, named=False)
    with pytest.raises(DataError, match=r"2 problems.*'Day'.*'Opening'"):
        places(["Date", *OHLC], {"time": "Day", "open": "Opening"})


def test_assumptions_are_recorded() -> None:
    findings = Findings("X", "x.csv")
    match(["Date", *OHLC, "Adj Close"], {"time": "Date"}, findings)
    assert [issue.kind for issue in findings.issues] == ["assumed_columns", "unadjusted_prices"]
    assert "open = 'Open'" in findings.issues[0].message
    findings = Findings("X", "x.csv")
    match(["Date", *OHLC], {"time": 0, "open": 1, "high": 2, "low": 3, "close": 4}, findings)
    assert findings.issues == []
