"""Which bars a calendar window owns, and whether it has ended."""

import numpy as np
import pytest

from backtest.calendar_windows import DAY_NS, calendar_windows
from backtest.errors import ConfigError, DataError

MONTHLY = "0 0 1 * *"


def days(first: str, last: str) -> np.ndarray:
    """Session dates of every calendar day in [first, last]."""
    start, stop = (int(np.datetime64(d, "D").astype(int)) for d in (first, last))
    return np.arange(start, stop + 1, dtype=np.int32)


def ns(*stamps: str) -> np.ndarray:
    return np.array(stamps, "datetime64[ns]").astype(np.int64)


def windows_of(session: np.ndarray, cron: str = MONTHLY, end: str | None = None):
    return calendar_windows(cron, None, session, always_open=False, end=end)


def test_months_of_2024() -> None:
    windows = windows_of(days("2024-01-01", "2024-04-29"))
    assert windows.keys == ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]
    assert windows.edges.tolist() == [0, 31, 60, 91, 120]
    assert windows.ended == 3  # April may still grow
    assert windows.whole_from == 0


def test_the_first_window_is_whole_only_from_its_first_day() -> None:
    windows = windows_of(days("2024-01-02", "2024-03-31"))
    assert windows.edges.tolist() == [0, 30, 59, 90]
    assert windows.whole_from == 1


def test_a_window_without_bars_is_empty() -> None:
    session = np.concatenate([days("2024-01-01", "2024-01-31"), days("2024-03-05", "2024-03-06")])
    windows = windows_of(session)
    assert windows.keys == ["2024-01-01", "2024-02-01", "2024-03-01"]
    assert windows.edges.tolist() == [0, 31, 31, 33]
    assert windows.ended == 2


def test_bars_of_one_session_stay_together() -> None:
    # the last bar of the session of 31 January closes on 1 February, UTC
    session = np.array([*days("2024-01-31", "2024-01-31").repeat(3), 19754], np.int32)
    windows = windows_of(session)
    assert windows.edges.tolist() == [0, 3, 4]


def test_the_nanosecond_before_the_close_places_a_bar_of_a_market_that_never_closes() -> None:
    time = ns("2024-01-31T23:00", "2024-02-01T00:00", "2024-02-01T00:00:00.000000001")
    windows = calendar_windows(MONTHLY, time, None, always_open=True)
    assert windows.edges.tolist() == [0, 2, 3]
    assert windows.ended == 1


def test_a_close_on_the_last_instant_ends_the_window() -> None:
    time = ns("2024-01-15T00:00", "2024-02-01T00:00")
    windows = calendar_windows(MONTHLY, time, None, always_open=True)
    assert (windows.keys, windows.ended) == (["2024-01-01"], 1)
    assert calendar_windows(MONTHLY, time - 1, None, always_open=True).ended == 0


def test_the_time_of_day_cuts_a_market_that_never_closes() -> None:
    time = ns("2024-01-05T17:30", "2024-01-05T18:30", "2024-01-12T17:30", "2024-01-12T18:30")
    windows = calendar_windows("30 17 * * 5", time, None, always_open=True)
    assert windows.keys == ["2023-12-29", "2024-01-05", "2024-01-12"]
    assert windows.edges.tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("end", "keys", "ended"),
    [
        ("2024-04-01", ["2024-01-01", "2024-02-01", "2024-03-01"], 3),  # closes March
        ("2024-03-20", ["2024-01-01", "2024-02-01"], 2),  # March would end after it
        ("2024-03-01", ["2024-01-01", "2024-02-01"], 2),
        # April was never reached: the data, not `end`, say that March is over or not
        ("2024-05-01", ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], 2),
    ],
)
def test_end_closes_the_definition(end: str, keys: list[str], ended: int) -> None:
    windows = windows_of(days("2024-01-01", "2024-03-31"), end=end)
    assert (windows.keys, windows.ended) == (keys, ended)


def test_a_tick_later_on_the_day_of_end_is_after_it() -> None:
    session = days("2024-01-01", "2024-02-20")
    assert windows_of(session, "0 0 1 * *", "2024-02-01").keys == ["2024-01-01"]
    assert windows_of(session, "0 9 1 * *", "2024-03-01").keys == ["2024-01-01"]


def test_leap_days_eight_years_apart() -> None:
    session = days("1903-06-01", "1904-03-01")
    assert windows_of(session, "0 0 29 2 *").keys == ["1896-02-29", "1904-02-29"]


def test_refusals() -> None:
    january = days("2024-01-01", "2024-01-31")
    with pytest.raises(ConfigError, match="never fires"):
        windows_of(january, "0 0 31 2 *")
    with pytest.raises(ConfigError, match=r"closes before the first window .*2024-01-01 to 2024-0"):
        windows_of(january, end="2024-01-31")
    with pytest.raises(ConfigError, match="use an ISO date"):
        windows_of(january, end="31.01.2024")
    with pytest.raises(DataError, match="session falls at bar 1"):
        windows_of(january[::-1])
    with pytest.raises(DataError, match="no bars"):
        windows_of(january[:0])
    with pytest.raises(ConfigError, match="cut by `time`"):
        calendar_windows(MONTHLY, None, january, always_open=True)
    with pytest.raises(ConfigError, match="cut by `session`"):
        calendar_windows(MONTHLY, january.astype(np.int64) * DAY_NS, None, always_open=False)
