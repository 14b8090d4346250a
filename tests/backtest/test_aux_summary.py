"""The direction forecast of a study over its runs, by hand."""

import json

import pytest

from backtest.agent.aux_verdict import verdict_row, win_interval
from backtest.aux_summary import aux_summary
from backtest.lake import Lake
from backtest.publication import publish
from backtest.queries import connect
from backtest.store import write_fold_result
from tests.backtest.fold_rows import equity_rows, fold_row, header, joined

STUDY = "a" * 16
SHARE = {"direction": [1, 0, 0, 0]}


def verdict(seed, wins, trades, epoch=-1, tv=None, norm=0.5):
    reference = None if tv is None else {"direction": [1 - tv, tv, 0, 0]}
    figures = {"w_norm": norm, "adam_m": 0.1, "adam_v": norm, "variance": {"magnitude": 0.5}}
    row = verdict_row(figures, win_interval(wins, trades), SHARE, reference)
    return {"seed": seed, "epoch": epoch, "reference_fold_id": None, **row}


def quality(seed, **values):
    return [{"seed": seed, "name": name, "value": value} for name, value in values.items()]


def write(lake, fold, verdicts, qualities):
    write_fold_result(
        lake,
        header(fold, STUDY),
        {
            "fold": [fold_row(fold)],
            "equity": joined(*(equity_rows([1.0, 2.0], fold, seed) for seed in (0, 1))),
            "aux_verdict": verdicts,
            "forecast_quality": qualities,
        },
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("lake"))
    write(
        lake,
        0,
        [verdict(0, 800, 1000, tv=0.25), verdict(1, 300, 1000), verdict(0, 1, 9, epoch=0)],
        [
            *quality(0, aux_auc=0.6, aux_shuffled_auc=0.5, aux_control_fails=1.0),
            *quality(1, aux_auc=0.5, aux_shuffled_auc=None, aux_control_fails=0.0),
        ],
    )
    write(lake, 1, [verdict(0, 0, 0, norm=0.0)], quality(0, aux_auc=0.4, aux_control_fails=1.0))
    publish(lake)
    with connect(lake) as connection:
        keys = ["2001-01-01", "2002-01-01"]
        both = aux_summary(connection, STUDY, "SP500", keys, 0.95)
        first = aux_summary(connection, STUDY, "SP500", keys[:1], 0.95)
        assert aux_summary(connection, "b" * 16, "SP500", keys, 0.95) is None
    return both, first


def test_final_rows_of_all_runs(found):
    both, first = found
    assert (both.runs, first.runs) == (3, 2)
    assert both.win_rate == win_interval(1100, 2000)
    assert both.means["tv_direction"] == pytest.approx(0.25)  # of the run that has a reference
    assert both.means["w_norm"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert both.quality["aux_auc"] == pytest.approx(0.5)
    assert both.quality["aux_shuffled_auc"] == 0.5
    assert (both.controls, first.controls) == (2, 1)
    assert both.conclusions == {
        "confirmed": 1,
        "routed but not actionable": 1,
        "gradient broken": 1,
    }
    assert first.text == "confirmed (1 of 2), routed but not actionable (1 of 2)"
    json.dumps(both.as_json(), allow_nan=False)
