"""Rows that describe a fold: times by the schema's meaning, hashes of what it read."""

from dataclasses import replace

import numpy as np

from backtest.data.bars import Bars
from backtest.evaluation.fold_rows import feature_rows, fold_row
from backtest.features.names import COLUMNS
from backtest.features.scaler import Scaler
from backtest.identity import rows_hash
from backtest.schema import conform
from backtest.splits import Fold, Window
from tests.tables import rough_table

FOLD = Fold(2, "2020-03-01", Window(10, 18), Window(20, 28), Window(30, 40))
KNOWN = {
    "fold_id": "f", "study_id": "s", "instrument": "X", "superseded": False,
}  # fmt: skip


def bars(n):
    """Bar b closes at second b."""
    price = np.arange(100.0, 100.0 + n)
    return Bars(
        "X", np.arange(n) * 10**9, price, price, price, price, np.ones(n),
        np.zeros(n, bool), np.arange(n, dtype=np.int32),
    )  # fmt: skip


def seconds(row):
    """The times of a row in bars, None where there is none."""
    return {
        name.removesuffix("_time"): None if value is None else value // 10**9
        for name, value in row.items()
        if name.endswith("_time")
    }


def test_a_stop_time_is_the_close_of_the_last_bar():
    row = fold_row(FOLD, bars(50), "h")
    assert seconds(row) == {
        "train_start": 10, "train_stop": 17, "validation_start": 20, "validation_stop": 27,
        "test_start": 30, "test_stop": 39,
    }  # fmt: skip
    assert [row[f"{w}_stop"] for w in ("train", "validation", "test")] == [18, 28, 40]
    assert (row["index"], row["n_bars"], row["status"]) == (2, 10, "complete")
    assert row["reason"] is None
    assert conform("fold", [row], KNOWN).num_rows == 1


def test_the_last_bar_of_the_history_has_a_time():
    row = fold_row(FOLD, bars(40), None)
    assert seconds(row)["test_stop"] == 39


def test_later_bars_change_nothing():
    assert fold_row(FOLD, bars(40), "h") == fold_row(FOLD, bars(60), "h")
    assert fold_row(FOLD, bars(60), "h")["bars_hash"] == rows_hash(bars(60), 40)


def test_an_empty_window_has_no_times():
    plan = replace(FOLD, test=Window(30, 30), status="skipped", reason="no bars")
    row = fold_row(plan, bars(30), None)
    assert seconds(row)["test_start"] is seconds(row)["test_stop"] is None
    assert (row["test_start"], row["test_stop"], row["reason"]) == (30, 30, "no bars")
    conform("fold", [row], KNOWN)


def test_a_fold_outside_the_history_has_no_bars():
    none = Window(0, 0)
    row = fold_row(Fold(-1, "2030-01-01", none, none, none, "skipped", "no bars"), bars(5), None)
    assert row["bars_hash"] is None
    assert all(row[name] is None for name in row if "start" in name or "stop" in name)
    conform("fold", [row], KNOWN)


def test_feature_statistics_are_those_of_the_test_window():
    table = rough_table(60)
    table.slow[35, 0] = np.nan
    scaler = Scaler(np.arange(84.0), np.arange(1.0, 85.0))
    rows = feature_rows(table, FOLD, scaler)
    assert [row["feature"] for row in rows] == list(COLUMNS)
    adx = rows[COLUMNS.index("adx")]
    inside = table["adx"][30:40]
    assert adx["mean"] == inside.mean()
    assert adx["std"] == inside.std()
    assert (adx["min"], adx["max"], adx["nan"]) == (inside.min(), inside.max(), 0)
    assert (adx["train_center"], adx["train_scale"]) == (40, 41)
    assert rows[42]["nan"] == 1
    conform("feature_stat", rows, {"fold_id": "f"})
