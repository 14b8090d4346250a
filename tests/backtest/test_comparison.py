"""Two studies side by side, on runs whose pairs can be counted by hand."""

import json

import numpy as np
import pytest

from backtest.comparison import compare
from backtest.errors import StoreError
from backtest.lake import Lake
from backtest.publication import publish
from backtest.store import write_fold_result
from tests.backtest.fold_rows import equity_rows, fold_row, header, joined, metric_row

A, B = "a" * 16, "b" * 16


def write_study(lake, study, sharpes, status="complete"):
    """Write folds whose runs have the given Sharpe, by fold and seed."""
    for fold, row in enumerate(sharpes):
        metrics = []
        for seed, sharpe in enumerate(row):
            metrics.append(metric_row("sharpe", sharpe, seed=seed, variant="chosen", n=2))
            metrics.append(metric_row("net_return", 0.1, seed=seed, variant="chosen", n=2))
        parts = [equity_rows([1.0, 2.0], fold, seed) for seed in range(len(row))]
        tables = {"fold": [fold_row(fold, status=status)], "metric": metrics}
        tables["equity"] = joined(*parts)
        write_fold_result(lake, header(fold, study), tables)


def compared(lake, studies=(A, B)):
    publish(lake)
    labels = [f"k={i + 1}" for i in range(len(studies))]
    return compare(lake, studies, labels, "SP500", resamples=200, confidence=0.95)


def test_the_pairs_of_every_fold_count(tmp_path):
    lake = Lake(tmp_path)
    write_study(lake, A, [[0.0, 1.0], [3.0, 3.0]])
    write_study(lake, B, [[0.5, 2.0], [3.0, 1.0]])
    found = compared(lake)
    assert found.fold_keys == ("2001-01-01", "2002-01-01")
    assert found.seeds == (0, 1)
    # fold 0: B wins 3 of 4 pairs; fold 1: one tie and one loss for each of A's: 2 * 0.5 of 4
    assert found.improvements[0].value == pytest.approx((0.75 + 0.25) / 2)
    assert found.differences[0].value == pytest.approx(np.mean([0.25, -0.5]))
    assert found.arms[0].mean_sharpe.value == pytest.approx(2.0)  # middle half of 0, 1, 3, 3
    assert found.arms[0].position.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert "cannot be told apart: P(k=2 > k=1) = 0.50" in found.summary
    assert "over 2 folds x 2 seeds" in found.summary


def test_a_run_that_never_traded_counts_as_nothing_earned(tmp_path):
    lake = Lake(tmp_path)
    write_study(lake, A, [[None, None]])
    write_study(lake, B, [[0.5, 0.2]])
    found = compared(lake)
    assert found.improvements[0].value == 1.0
    assert found.summary.startswith("ab SP500: k=2 is better: P(k=2 > k=1) = 1.00 [1.00, 1.00]")
    assert np.isnan(found.arms[0].sharpe).all()
    assert found.arms[0].scores.tolist() == [[0.0], [0.0]]
    from backtest.queries import json_value

    json.dumps(json_value(found.as_json()), allow_nan=False)


def test_only_shared_complete_folds_are_compared(tmp_path):
    lake = Lake(tmp_path)
    write_study(lake, A, [[0.0, 0.0], [1.0, 1.0]])
    write_study(lake, B, [[1.0, 1.0], [0.0]])  # seed 1 of the second fold is not there yet
    assert compared(lake).fold_keys == ("2001-01-01",)
    found = compared(lake)
    assert found.summary.startswith("ab SP500: k=2 is better")


def test_every_arm_is_measured_against_the_first(tmp_path):
    lake, third = Lake(tmp_path), "c" * 16
    write_study(lake, A, [[0.0, 1.0]])
    write_study(lake, B, [[2.0, 3.0]])
    write_study(lake, third, [[-1.0, -2.0], [5.0, 5.0]])  # a fold that the others lack
    found = compared(lake, (A, B, third))
    assert found.fold_keys == ("2001-01-01",)
    assert [arm.label for arm in found.arms] == ["k=1", "k=2", "k=3"]
    assert [chance.value for chance in found.improvements] == [1, 0]
    assert [difference.value for difference in found.differences] == [2, -2]
    assert [line.split(":")[1].strip() for line in found.summary.splitlines()] == [
        "k=2 is better",
        "k=1 is better",
    ]
    value = found.as_json()
    assert "probability_of_improvement" not in value
    assert [arm.get("probability_of_improvement", {}).get("value") for arm in value["arms"]] == [
        None,
        1,
        0,
    ]
    assert {arm["aux"] for arm in value["arms"]} == {None}


def test_nothing_in_common_is_an_error(tmp_path):
    lake = Lake(tmp_path)
    write_study(lake, A, [[0.0]])
    write_study(lake, B, [[0.0]], status="partial")
    with pytest.raises(StoreError, match="share no complete fold of SP500"):
        compared(lake)


def test_one_seed_and_fold_have_no_interval(tmp_path):
    lake = Lake(tmp_path)
    write_study(lake, A, [[0.0]])
    write_study(lake, B, [[1.0]])
    assert compared(lake).summary.endswith("= 1.00 over 1 fold x 1 seed: no interval")
