import numpy as np
import pytest

from backtest.data.session import bars_per_year, calendar, sessions_per_year, zone
from backtest.data.spacing import Spacing
from backtest.errors import ConfigError, DataError


def day(text: str) -> int:
    return int(np.datetime64(text, "D").astype(np.int64))


def ns(*texts: str) -> np.ndarray:
    return np.array([np.datetime64(text, "ns") for text in texts]).astype(np.int64)


def days(session: np.ndarray) -> list[str]:
    return session.astype("datetime64[D]").astype(str).tolist()


def test_around_the_clock_a_bar_belongs_to_the_day_it_closes_in() -> None:
    always = calendar("24/7", day("2024-01-01"), day("2024-01-05"))
    time = ns("2024-01-02T00:00", "2024-01-02T00:01", "2024-01-03T00:00")
    session, inside = always.session_of(time)
    assert days(session) == ["2024-01-01", "2024-01-02", "2024-01-02"]
    assert inside.all()
    assert always.close_of(np.array([day("2024-01-01")]))[0] == ns("2024-01-02")[0]


def test_new_york_closes_move_with_summer_time_and_half_days() -> None:
    nyse = calendar("XNYS", day("2024-01-02"), day("2024-12-31"))
    dates = np.array([day(d) for d in ("2024-01-02", "2024-07-02", "2024-07-03")])
    assert nyse.close_of(dates).tolist() == ns(
        "2024-01-02T21:00", "2024-07-02T20:00", "2024-07-03T17:00"
    ).tolist()  # fmt: skip
    # a Saturday closes at Friday's time of day
    assert nyse.close_of(np.array([day("2024-01-06")]))[0] == ns("2024-01-06T21:00")[0]
    assert zone("XNYS") == "America/New_York"


def test_sessions_of_futures_begin_on_the_evening_before() -> None:
    cme = calendar("CMES", day("2024-01-02"), day("2024-01-31"))
    # 17:00 in Chicago is 23:00 UTC: the close of the 3rd and the open of the 4th
    session, inside = cme.session_of(ns("2024-01-03T23:00", "2024-01-03T23:01"))
    assert days(session) == ["2024-01-03", "2024-01-04"]
    session, _ = cme.session_of(ns("2024-01-03T23:00"), stamp="open")
    assert days(session) == ["2024-01-04"]
    assert inside.all()


def test_bars_outside_belong_to_their_date_or_to_the_next_session() -> None:
    nyse = calendar("XNYS", day("2024-01-02"), day("2024-01-31"))
    time = ns("2024-01-05T13:00", "2024-01-05T22:00", "2024-01-06T18:00", "2024-01-05T18:00")
    session, inside = nyse.session_of(time)  # pre-market, post-market, Saturday, regular
    assert days(session) == ["2024-01-05", "2024-01-05", "2024-01-08", "2024-01-05"]
    assert inside.tolist() == [False, False, False, True]


def test_years_are_counted_from_the_calendar() -> None:
    assert sessions_per_year("24/7") == 365
    assert sessions_per_year("XNYS") == 251.6  # (252 + 253 + 252 + 251 + 250)/5, 2019 to 2023
    # 26 bars of 15 minutes in a full day, 14 in a half day; not 252 x 96
    assert bars_per_year("XNYS", Spacing(15, "min")) == pytest.approx(251.6 * 26, rel=0.01)
    assert bars_per_year("XNYS", Spacing(1, "d")) == 251.6
    assert bars_per_year("24/7", Spacing(1, "h")) == 365 * 24
    assert bars_per_year("24/7", Spacing(1, "mo")) == 12
    tokyo = sessions_per_year("XTKS")
    assert bars_per_year("XTKS", Spacing(1, "h")) == 5 * tokyo  # six hours less a break of one


def test_unknown_calendars_and_dates_out_of_reach() -> None:
    with pytest.raises(ConfigError, match="calendar = 'NOPE'"):
        sessions_per_year("NOPE")
    with pytest.raises(DataError, match="XTKS does not cover 1990"):
        calendar("XTKS", day("1990-01-01"), day("1991-01-01"))
    # Tokyo's calendar begins on 1997-01-01: data from then on need no margin before it
    assert days(calendar("XTKS", day("1997-01-05"), day("1997-02-01")).date)[0] == "1997-01-06"
