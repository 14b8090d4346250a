"""Walk-forward folds: worked examples, the faults of other tools, and properties of any plan."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.calendar_windows import DAY_NS
from backtest.errors import ConfigError, DataError
from backtest.splits import Fold, WalkForward, Window, around

TINY = WalkForward(train=30, validation=0, test=10, purge=2, warmup=0, horizon=1)


def show(fold: Fold) -> tuple[int, ...]:
    """Edges of train, validation (when there is one) and test."""
    windows = [fold.train, fold.validation, fold.test]
    return tuple(edge for w in windows if len(w) for edge in (w.start, w.stop))


# plan, bars, folds written down by hand; horizon 1, fill lag 1, embargo 0
WORKED = {
    "rolling": (
        TINY,
        60,
        [(0, 28, 30, 40), (10, 38, 40, 50), (20, 48, 50, 60)],
    ),
    "rolling with validation": (
        replace(TINY, validation=10),
        60,
        [(0, 28, 30, 38, 40, 50), (10, 38, 40, 48, 50, 60)],
    ),
    "anchored": (
        replace(TINY, mode="anchored"),
        60,
        [(0, 28, 30, 40), (0, 38, 40, 50), (0, 48, 50, 60)],
    ),
    "anchored with validation": (
        replace(TINY, mode="anchored", validation=10),
        60,
        [(0, 28, 30, 38, 40, 50), (0, 38, 40, 48, 50, 60)],
    ),
    "after a warm-up": (replace(TINY, warmup=7), 60, [(7, 35, 37, 47), (17, 45, 47, 57)]),
    "anchored after a warm-up": (
        replace(TINY, warmup=7, mode="anchored"),
        60,
        [(7, 35, 37, 47), (7, 45, 47, 57)],
    ),
    "a wider purge": (replace(TINY, purge=5), 50, [(0, 25, 30, 40), (10, 35, 40, 50)]),
    "purge of horizon + fill lag": (replace(TINY, purge=None, horizon=4), 40, [(0, 25, 30, 40)]),
    "step given": (replace(TINY, step=10), 40, [(0, 28, 30, 40)]),
    "short last window dropped": (TINY, 49, [(0, 28, 30, 40)]),
    "short last window kept": (
        replace(TINY, keep_partial=True),
        49,
        [(0, 28, 30, 40), (10, 38, 40, 49)],
    ),
    "embargo cuts nothing that lies before": (replace(TINY, embargo=9), 40, [(0, 28, 30, 40)]),
    "the smallest plan": (
        WalkForward(train=3, validation=0, test=1, purge=1, warmup=0, horizon=0),
        5,
        [(0, 2, 3, 4), (1, 3, 4, 5)],
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name: str) -> None:
    plan, n_bars, expected = WORKED[name]
    assert [show(fold) for fold in plan.folds(n_bars)] == expected
    assert plan.n_folds(n_bars) == len(expected)


def test_the_example_of_the_specification_to_its_end() -> None:
    folds = TINY.folds(100)
    assert [fold.key for fold in folds] == [f"bar_{b}" for b in range(30, 100, 10)]
    assert show(folds[-1]) == (60, 88, 90, 100)
    assert folds[0].validation == Window(30, 30)
    assert {fold.status for fold in folds} == {"complete"}


def test_a_kept_short_window_is_partial_and_grows_complete() -> None:
    plan = replace(TINY, keep_partial=True)
    assert [f.status for f in plan.folds(49)] == ["complete", "partial"]
    assert plan.folds(49)[1].reason == "the test window has not ended"
    assert [f.status for f in plan.folds(50)] == ["complete", "complete"]


def test_sessions_count_days_and_purge_counts_bars() -> None:
    # sessions of 4, 1, 4, 4, 4, 4 bars, two warm-up bars
    session = np.repeat(np.array([10, 11, 14, 15, 16, 17], np.int32), [4, 1, 4, 4, 4, 4])
    plan = WalkForward(2, 1, 1, purge=2, warmup=2, horizon=1, unit="sessions")
    folds = plan.folds(21, session=session)
    # train starts with the first session that begins at or after the warm-up
    assert [show(f) for f in folds] == [(4, 7, 9, 11, 13, 17), (5, 11, 13, 15, 17, 21)]
    assert [f.key for f in folds] == ["1970-01-17", "1970-01-18"]


def test_sessions_of_a_market_that_never_closes_end_at_midnight() -> None:
    time = np.arange(1, 9, dtype=np.int64) * (DAY_NS // 2)  # noon, midnight, noon, ...
    plan = WalkForward(1, 0, 1, purge=0, warmup=0, horizon=0, fill_lag=0, unit="sessions")
    plan = replace(plan, calendar="24/7", keep_partial=True)
    assert [show(f) for f in plan.folds(8, time)] == [(0, 2, 2, 4), (2, 4, 4, 6), (4, 6, 6, 8)]
    assert [f.status for f in plan.folds(8, time)] == ["complete"] * 3
    assert [f.status for f in plan.folds(7, time[:7])] == ["complete", "complete", "partial"]


def test_row_01_the_purge_never_shortens_the_test_window() -> None:
    # 120 daily rows of 2024, one month train, one month test: January has 31 days, February 29
    session = np.arange(19723, 19723 + 120, dtype=np.int32)
    plan = WalkForward(1, 0, 1, purge=1, warmup=0, horizon=0, unit="calendar", cron="0 0 1 * *")
    folds = plan.folds(120, session=session)
    assert [show(f) for f in folds] == [(0, 30, 31, 60), (31, 59, 60, 91)]
    assert [f.key for f in folds] == ["2024-02-01", "2024-03-01"]


def test_a_month_that_began_before_the_data_is_not_trained_on() -> None:
    session = np.arange(19723 + 14, 19723 + 120, dtype=np.int32)  # from 15 January 2024
    plan = WalkForward(1, 0, 1, purge=1, warmup=0, horizon=0, unit="calendar", cron="0 0 1 * *")
    folds = plan.folds(106, session=session)
    assert [(f.key, *show(f)) for f in folds] == [("2024-03-01", 17, 45, 46, 77)]


def test_rows_03_and_04_the_last_label_of_train_reads_no_test_bar() -> None:
    plan = WalkForward(train=21, validation=0, test=20, warmup=12, horizon=5)
    for fold in plan.folds(100):
        assert fold.train.stop - 1 + plan.fill_lag + plan.horizon < fold.test.start
    for purge in (0, 5):
        with pytest.raises(ConfigError, match=r"purge = . is less than horizon \+ fill_lag = 6"):
            replace(plan, purge=purge)


def test_row_13_labels_that_overlap_the_test_window_go() -> None:
    # labels of 3 days from day t end at t + 2; test from 3: 1 and 2 overlap, 0 does not
    before, _ = around(Window(0, 3), Window(3, 6), purge=2)
    assert before == Window(0, 1)


def test_row_14_the_embargo_follows_the_test_window() -> None:
    before, behind = around(Window(0, 30), Window(10, 20), purge=0, embargo=3)
    assert (before, behind) == (Window(0, 10), Window(23, 30))


def test_row_15_embargo_and_purge_add_up() -> None:
    before, behind = around(Window(0, 30), Window(10, 20), purge=2, embargo=3)
    assert (before, behind) == (Window(0, 8), Window(25, 30))


def test_around_may_leave_nothing() -> None:
    before, behind = around(Window(8, 12), Window(9, 11), purge=4, embargo=1)
    assert (len(before), len(behind)) == (0, 0)


plans = st.builds(
    WalkForward,
    train=st.integers(15, 40),
    validation=st.sampled_from([0, 15, 20]),
    test=st.integers(1, 30),
    mode=st.sampled_from(["rolling", "anchored"]),
    purge=st.sampled_from([None, 12, 13]),
    warmup=st.integers(0, 30),
    horizon=st.integers(0, 11),
    embargo=st.integers(0, 9),
    keep_partial=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(plan=plans, extra=st.integers(0, 120))
def test_properties_of_any_plan(plan: WalkForward, extra: int) -> None:
    n_bars = plan.warmup + plan.train + plan.validation + plan.test + extra
    folds = plan.folds(n_bars)
    assert plan.n_folds(n_bars) == len(folds)
    assert [fold.index for fold in folds] == list(range(len(folds)))
    for fold in folds:
        # rows 05, 07, 10: ordered, disjoint, within the data
        assert plan.warmup <= fold.train.start < fold.train.stop <= fold.validation.start
        assert fold.validation.start <= fold.validation.stop <= fold.test.start < fold.test.stop
        assert fold.test.stop <= n_bars
        gap = (fold.validation if plan.validation else fold.test).start - fold.train.stop
        assert gap == plan.purged
        if plan.validation:
            assert fold.test.start - fold.validation.stop == plan.purged
        # row 01: whole, whatever the purge
        assert len(fold.test) == plan.test or fold.status == "partial"
        assert fold.status == "complete" or fold is folds[-1]
    assert folds[0].test.start == plan.warmup + plan.train + plan.validation
    # row 05: no hole, no overlap; row 06: in the order of time
    assert all(a.test.stop == b.test.start for a, b in pairwise(folds))
    covered = folds[-1].test.stop - folds[0].test.start
    assert sum(len(fold.test) for fold in folds) == covered
    if not plan.keep_partial:
        assert n_bars - folds[-1].test.stop < plan.test
    # row 19: later bars leave what was complete as it is
    complete = [fold for fold in folds if fold.status == "complete"]
    assert plan.folds(n_bars + 7)[: len(complete)] == complete


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": 0}, "train = 0: use a whole number, 1 or more"),
        ({"train": 30.5}, "train = 30.5: use a whole number"),
        ({"train": True}, "train = True"),
        ({"validation": -1}, "validation = -1"),
        ({"test": 0}, "test = 0"),
        ({"embargo": -1}, "embargo = -1"),
        ({"purge": -1}, "purge = -1"),
        ({"purge": 1}, "purge = 1 is less than horizon \\+ fill_lag = 2"),
        ({"train": 3}, "train = 3 bars, of which the purge takes 2; use 4 or more"),
        ({"validation": 3}, "validation = 3 bars, of which the purge takes 2"),
        ({"step": 5}, "step = 5 differs from test = 10: test windows would overlap"),
        ({"mode": "expanding"}, "mode = 'expanding': use rolling or anchored"),
        ({"unit": "days"}, "unit = 'days': use bars or sessions or calendar"),
        ({"cron": "0 0 1 1 *"}, "cron and end belong to unit = 'calendar'"),
        ({"unit": "calendar", "test": 1}, "needs a cron"),
        ({"unit": "calendar", "cron": "0 0 1 1 *"}, "test = 10: a calendar plan tests one window"),
        (
            {"unit": "calendar", "cron": "0 0 1 1 *", "test": 1, "mode": "anchored"},
            "calendar plans only roll",
        ),
    ],
)
def test_refuses_a_plan_that_cannot_be_meant(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(TINY, **change)


def test_an_impossible_plan_says_how_many_bars_it_needs() -> None:
    plan = replace(TINY, warmup=605, validation=10)
    with pytest.raises(ConfigError, match=r"needs 655 bars \(warm-up 605 .*there are 654"):
        plan.folds(654)
    assert len(plan.folds(655)) == 1
    with pytest.raises(ConfigError, match="there are 0"):
        plan.folds(0)


def test_too_few_sessions() -> None:
    plan = WalkForward(4, 1, 1, purge=2, warmup=2, horizon=1, unit="sessions")
    session = np.repeat(np.arange(6, dtype=np.int32), 5)
    with pytest.raises(ConfigError, match=r"6 whole sessions .*about 32 bars; the 30 bars hold 5"):
        plan.folds(30, session=session)


def test_sessions_shorter_than_the_purge() -> None:
    plan = WalkForward(4, 0, 1, warmup=0, unit="sessions")
    session = np.arange(40, dtype=np.int32)
    with pytest.raises(
        ConfigError, match=r"no fold fits: too little history: train has 0 bars .*13"
    ):
        plan.folds(40, session=session)


def test_columns_must_fit_the_axis() -> None:
    plan = WalkForward(20, 0, 1, warmup=0, unit="sessions")
    with pytest.raises(ConfigError, match="session has 5 rows for n_bars = 6"):
        plan.folds(6, session=np.arange(5, dtype=np.int32))
    with pytest.raises(ConfigError, match="cut by `session`"):
        plan.folds(6)
    with pytest.raises(DataError, match="session falls at bar 3"):
        plan.folds(6, session=np.array([1, 2, 3, 2, 4, 5], np.int32))


def test_a_window_holds_its_bars() -> None:
    window = Window(3, 5)
    assert [bar in window for bar in (2, 3, np.int64(4), 5)] == [False, True, True, False]
    assert "3" not in window
    assert (len(window), len(Window(5, 3))) == (2, 0)
