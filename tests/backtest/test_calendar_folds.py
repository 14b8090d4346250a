"""The `[folds]` section on real sessions, and the names that it shares with Dagster."""

from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest
from dagster import TimeWindowPartitionsDefinition

from backtest.calendar_folds import calendar_folds, feature_windows, fold_of, window_keys
from backtest.calendar_windows import DAY_NS
from backtest.config import Folds
from backtest.errors import ConfigError
from backtest.splits import Window

Columns = tuple[np.ndarray, np.ndarray]


def columns(session: np.ndarray) -> Columns:
    """Closes at 21:00 UTC and session dates."""
    session = session.astype(np.int32)
    return session.astype(np.int64) * DAY_NS + 21 * (DAY_NS // 24), session


@pytest.fixture(scope="module")
def sp500() -> Columns:
    from arch.data import sp500 as source

    return columns(source.load().index.to_numpy().astype("datetime64[D]").astype(np.int64))


def weekdays(first: str, last: str) -> np.ndarray:
    days = np.arange(np.datetime64(first, "D"), np.datetime64(last, "D") + 1)
    return days[np.is_busday(days)].astype(np.int64)


def test_twenty_years_of_the_sp500_give_eight_folds(sp500: Columns) -> None:
    folds = calendar_folds(Folds(end="2019-01-01"), *sp500, always_open=False)
    assert [fold.key for fold in folds] == [f"{year}-01-01" for year in range(2011, 2019)]
    assert {fold.status for fold in folds} == {"complete"}
    # 605 bars end in 2001; 2002 to 2009 train, 2010 validation, 2011 test; a purge of 13
    first = folds[0]
    assert first.train == Window(752, 2767 - 13)
    assert first.validation == Window(2767, 3019 - 13)
    assert first.test == Window(3019, 3271)
    assert folds[-1].test == Window(4780, 5031)


def test_without_an_end_the_last_window_is_partial(sp500: Columns) -> None:
    folds = calendar_folds(Folds(), *sp500, always_open=False)
    assert [fold.status for fold in folds] == ["complete"] * 7 + ["partial"]


def test_later_bars_leave_earlier_folds_alone(sp500: Columns) -> None:
    time, session = sp500
    now = calendar_folds(Folds(), time, session, always_open=False)
    before = calendar_folds(Folds(), time[:4900], session[:4900], always_open=False)
    assert before[:7] == now[:7]
    assert before[7].status == "partial"
    assert before[7].test == Window(4780, 4900)


def test_feature_windows_tile_the_axis(sp500: Columns) -> None:
    windows = feature_windows(Folds(), *sp500, always_open=False)
    assert list(windows) == [f"{year}-01-01" for year in range(1999, 2019)]
    edges = [w.start for w in windows.values()] + [5031]
    assert list(windows.values()) == [Window(*pair) for pair in pairwise(edges)]
    assert edges[0] == 0
    for fold in calendar_folds(Folds(), *sp500, always_open=False):
        assert windows[fold.key] == fold.test


@pytest.mark.parametrize("cron", ["0 0 1 1 *", "0 0 1 */3 *", "0 0 1 * *", "0 0 * * 1"])
def test_keys_are_dagsters(sp500: Columns, cron: str) -> None:
    keys = window_keys(Folds(cron=cron, end="2019-01-01"), *sp500, always_open=False)
    partitions = TimeWindowPartitionsDefinition(
        start=datetime.fromisoformat(keys[0]),
        end=datetime(2019, 1, 1),
        cron_schedule=cron,
        fmt="%Y-%m-%d",
    )
    assert keys == list(partitions.get_partition_keys())


def test_a_window_without_bars_is_skipped_and_history_may_be_too_short() -> None:
    # trading stops in May and June 2021 and for all but three days of July
    session = np.concatenate(
        [weekdays("2018-01-01", "2021-04-30"), weekdays("2021-07-28", "2021-12-31")]
    )
    plan = Folds(cron="0 0 1 * *", train=3, validation=1, end="2022-01-01")
    folds = {f.key: f for f in calendar_folds(plan, *columns(session), always_open=False)}
    assert list(folds) == [
        str(month)
        for month in np.arange("2020-09", "2022-01", dtype="datetime64[M]").astype("datetime64[D]")
    ]
    assert (folds["2021-05-01"].status, folds["2021-05-01"].reason) == ("skipped", "no bars")
    assert len(folds["2021-06-01"].test) == 0
    july = folds["2021-07-01"]
    assert july.status == "skipped"
    assert july.reason == "too little history: validation has 0 bars after a purge of 13"
    assert len(july.test) == 3
    # September validates on August and trains on three days of July after an empty May and June
    assert folds["2021-09-01"].reason.startswith("too little history: train has 0 bars")
    assert folds["2021-10-01"].status == "complete"
    assert [f.index for f in folds.values()] == list(range(16))


def test_keys_beyond_the_history_are_skipped(sp500: Columns) -> None:
    folds = calendar_folds(Folds(), *sp500, always_open=False)
    assert fold_of(folds, "2012-01-01") is folds[1]
    early, late = fold_of(folds, "2005-01-01"), fold_of(folds, "2019-01-01")
    assert (early.status, early.reason, early.index) == ("skipped", "too little history", -1)
    assert (late.status, late.reason) == ("skipped", "no bars")


def test_windows_between_the_last_bar_and_end_are_skipped(sp500: Columns) -> None:
    folds = calendar_folds(Folds(end="2021-01-01"), *sp500, always_open=False)
    assert [f.status for f in folds[-4:]] == ["complete", "partial", "skipped", "skipped"]


def test_a_market_that_never_closes() -> None:
    hours = np.arange(1, 24 * 366 + 1, dtype=np.int64)  # closes 01:00 to midnight, all of 2024
    time = (19723 * 24 + hours) * (DAY_NS // 24)
    session = ((time - 1) // DAY_NS).astype(np.int32)
    plan = Folds(cron="0 0 1 * *", train=2, validation=1)
    folds = calendar_folds(plan, time, session, always_open=True)
    # 605 hours end in January; February and March train, April validates
    assert (folds[0].key, folds[0].train.start) == ("2024-05-01", 31 * 24)
    assert folds[0].test == Window(121 * 24, 152 * 24)
    # the bar that closes at midnight ends the year
    assert [fold.status for fold in folds] == ["complete"] * 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"train": 30},
            r"32 whole windows of cron '0 0 1 1 \*' .*after 605 bars of warm-up, about",
        ),
        ({"end": "2010-06-01"}, "the 5031 bars hold 8 before end = '2010-06-01'"),
        ({"end": "1999-06-01"}, "closes before the first window"),
        ({"end": "next year"}, "use an ISO date"),
        ({"cron": "@yearly"}, "fields instead of 5"),
        ({"cron": "0 0 * * 1"}, "train and validation need at least 15 bars each"),
    ],
)
def test_an_impossible_plan_names_the_section(
    sp500: Columns, change: dict[str, object], said: str
) -> None:
    plan = Folds.model_validate({"train": 1, **change})
    if change.get("end") == "2010-06-01":
        plan = plan.model_copy(update={"train": 8})
    with pytest.raises(ConfigError, match=rf"^\[folds\] .*{said}"):
        calendar_folds(plan, *sp500, always_open=False)
