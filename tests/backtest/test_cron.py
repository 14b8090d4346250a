"""The days of a schedule, against Dagster's own partitions: the UI must show the same keys."""

from datetime import datetime

import numpy as np
import pytest
from dagster import TimeWindowPartitionsDefinition

from backtest.cron import Cron
from backtest.errors import ConfigError

SCHEDULES = (
    "0 0 1 1 *",  # yearly
    "0 0 1 */3 *",  # quarterly
    "0 0 1 1,4,7,10 *",
    "0 0 1 * *",  # monthly
    "0 0 1,15 * *",
    "0 0 31 * *",
    "0 0 29 2 *",
    "0 0 * * 1",  # weekly
    "0 0 * * 0",
    "0 0 * * 7",
    "0 0 * * 5-7",
    "0 0 * * 1-5",
    "0 0 * * */2",
    "0 0 * * *",  # daily
    "0 0 */2 * *",
    "0 0 1 5/2 *",
    "0 0 1 2-11/3 *",
    "0 0 13 * 5",  # day of month and day of week: either
    "0 0 */10 * 1",
    "30 17 * * 5",
)


def day(date: str) -> int:
    return int(np.datetime64(date, "D").astype(int))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fires_on_dagsters_days(schedule: str) -> None:
    partitions = TimeWindowPartitionsDefinition(
        start=datetime(2007, 3, 3),
        end=datetime(2013, 1, 1),
        cron_schedule=schedule,
        fmt="%Y-%m-%d",
    )
    keys = list(partitions.get_partition_keys())
    ticks = [
        str(np.datetime64(int(d), "D"))
        for d in Cron.parse(schedule).fires(day("2007-03-03"), day("2013-01-01"))
    ]
    # the last tick opens a window that ends after `end`, unless it falls on it
    assert keys == ticks[: len(keys)]
    assert 0 <= len(ticks) - len(keys) <= 1


def test_time_of_day() -> None:
    cron = Cron.parse(" 30  17 * * 5 ")
    assert (cron.hour, cron.minute) == (17, 30)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("@monthly", "1 fields instead of 5"),
        ("0 0 1 1", "4 fields instead of 5"),
        ("0 0 1 1 * *", "6 fields instead of 5"),
        ("0 0 1 jan *", "month 'jan' is not understood"),
        ("0 0 L * *", "day-of-month 'L' is not understood"),
        ("0 0 32 * *", "day-of-month '32' is outside 1-31"),
        ("0 0 0 * *", "day-of-month '0' is outside 1-31"),
        ("0 0 1 13 *", "month '13' is outside 1-12"),
        ("0 0 * * 8", "day-of-week '8' is outside 0-7"),
        ("0 0 5-2 * *", "outside 1-31 or empty"),
        ("0 0 */0 * *", "day-of-month '\\*/0' is outside"),
        ("0 0 1- * *", "day-of-month '1-' is not understood"),
        ("0 0 1, * *", "day-of-month '' is not understood"),
        ("0 0 -1 * *", "day-of-month '-1' is not understood"),
        ("0 0 ² * *", "not understood"),
        ("* 0 * * *", "minute must be one number"),
        ("0 */6 * * *", "hour must be one number"),
        ("0 24 * * *", "hour '24' is outside 0-23"),
    ],
)
def test_refuses_other_schedules(schedule: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        Cron.parse(schedule)
    assert "'0 0 1 * *' (monthly)" in str(refused.value)
