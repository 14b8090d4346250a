"""What the controls demand, on made-up outcomes; that the learner meets it is `test_learning`."""

import numpy as np
import pytest

from backtest.controls import KINDS, QUICK, Outcome, configuration, fold, instrument, judge, planted
from backtest.data.ingest import ingest
from backtest.evaluation.intervals import Interval
from backtest.features.table import compute
from backtest.sections import Synthetic

NONE = Interval(None, None, None, 0)


def outcomes(kind, pnl, share):
    return [
        Outcome(kind, seed, NONE, value, value + 0.001, share) for seed, value in enumerate(pnl)
    ]


@pytest.mark.parametrize(
    "kind, pnl, share, passed",
    [
        ("positive", [0.10, 0.12, 0.11, 0.09], 0.1, True),
        ("positive", [0.10, -0.12, 0.11, -0.09], 0.1, False),
        ("negative", [0.01, -0.01, 0.02, -0.02], 0.0, True),
        ("negative", [0.10, 0.12, 0.11, 0.09], 0.1, False),
        ("leak", [0.9, 0.95, 0.92], 0.95, True),
        ("leak", [0.9, 0.95, 0.92], 0.85, False),
        ("shuffled", [0.0, 0.01, -0.01], 0.0, True),
        ("shuffled", [0.9, 0.95, 0.92], 0.95, False),
        ("negative", [-0.10, -0.12, -0.11, -0.09], -0.1, False),
    ],
)
def test_verdicts(kind, pnl, share, passed):
    verdict = judge(kind, outcomes(kind, pnl, share))
    assert verdict.passed is passed
    assert verdict.text.endswith("holds" if passed else "FAILS")


def test_the_planted_markets():
    for kind in KINDS:
        phi = instrument(kind, QUICK, 3).synthetic.phi
        assert phi == (0.3 if kind == "positive" else 0.0)
    assert configuration("leak", QUICK).learner.branches == ("direction",)
    assert configuration("positive", QUICK).learner.branches == ("direction", "magnitude")


def test_the_fold_is_purged_and_holds_208_sessions_of_hourly_bars():
    one = fold(QUICK)
    assert one.validation.start - one.train.stop == 13
    assert len(one.test) == 5000
    assert len(one.test) // 24 == 208


def test_the_leak_is_the_next_difference_and_nothing_else_changes(tmp_path):
    market = instrument("leak", QUICK, 0).model_copy(
        update={"synthetic": Synthetic(bars=700, sigma=1.2)}
    )
    table = compute(ingest("LEAK", market, tmp_path).bars)
    state = np.zeros((50, 115), np.float32)
    leaked = planted("leak", table, state, 620, 0.25, 0)
    step = (table.close[631] - table.close[630]) / table.sigma[630]
    assert leaked[10, 0] == pytest.approx(step, rel=1e-6)
    assert (leaked[:, 1:] == 0).all()
    shuffled = planted("shuffled", table, state, 620, 0.25, 0)
    assert sorted(shuffled[:, 0]) == sorted(leaked[:, 0])
    assert (shuffled[:, 0] != leaked[:, 0]).any()
    assert planted("positive", table, state, 620, 0.25, 0) is state
