import os
import time

import numpy as np
import pytest

from backtest.data.clock import check_zone, local, moment, utc
from backtest.errors import ConfigError


def ns(*texts: str) -> np.ndarray:
    return np.array([np.datetime64(text, "ns") for text in texts]).astype(np.int64)


@pytest.mark.parametrize(
    ("wall", "time"),
    [
        ("2017-01-02T17:00", "2017-01-02T22:00"),  # 17:00 in New York is 22:00 UTC in winter
        ("2017-07-03T17:00", "2017-07-03T21:00"),  # and 21:00 in summer
        ("2017-03-12T01:59", "2017-03-12T06:59"),
        ("2017-03-12T03:00", "2017-03-12T07:00"),
        ("2017-11-05T02:00", "2017-11-05T07:00"),
    ],
)
def test_wall_clock_to_utc_and_back(wall: str, time: str) -> None:
    times, skipped, repeated = utc(ns(wall), "America/New_York")
    assert times[0] == ns(time)[0]
    assert not skipped.any() and not repeated.any()
    assert local(times, "America/New_York")[0] == ns(wall)[0]


def test_readings_that_never_happened_or_happened_twice() -> None:
    wall = ns("2017-03-12T02:00", "2017-03-12T02:59:59", "2017-11-05T01:00", "2017-11-05T01:59")
    _, skipped, repeated = utc(wall, "America/New_York")
    assert skipped.tolist() == [True, True, False, False]
    assert repeated.tolist() == [False, False, True, True]


def test_the_hosts_time_zone_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for host in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", host)
        time.tzset()
        results.append(utc(ns("2017-07-03T17:00"), "America/New_York")[0][0])
    monkeypatch.undo()
    time.tzset()
    assert results[0] == results[1] == ns("2017-07-03T21:00")[0]
    assert os.environ.get("TZ") != "Asia/Tokyo"


def test_unknown_zones_name_the_key() -> None:
    with pytest.raises(ConfigError, match=r"csv\.timezone = 'Mars/Olympus'"):
        check_zone("Mars/Olympus", "csv.timezone")
    check_zone("Europe/Berlin", "csv.timezone")


def test_moments_are_short() -> None:
    assert moment(ns("2017-01-02")[0]) == "2017-01-02"
    assert moment(ns("2017-01-02T10:30")[0]) == "2017-01-02 10:30:00"
