"""Compounding of folds, and metrics over all of them."""

import numpy as np
import pytest

from backtest.errors import DataError
from backtest.evaluation.metrics import METRICS, OPEN, fold_metrics
from backtest.evaluation.stitching import compound, stitch, stitched_metrics
from tests.backtest.evaluation.test_metrics import trades_of


def fold_of(start: int, pnl: list[float], position: float = 1.0) -> dict[str, np.ndarray]:
    """Equity rows of bars from `start` on, one a session, of a fold that starts with 1,000."""
    n = len(pnl)
    return {
        "bar": np.arange(start, start + n),
        "session": np.arange(start, start + n, dtype=np.int32),
        "position": np.full(n, position),
        "gross": np.array(pnl, float),
        "cost": np.zeros(n),
        "pnl": np.array(pnl, float),
        "equity": 1000 + np.cumsum(np.array(pnl, float)),
    }


THREE = [fold_of(10, [150, -50]), fold_of(12, [-50]), fold_of(13, [100, 100])]


def test_row_30h_folds_compound() -> None:
    found = stitch(THREE, 1000)
    assert found.fold_returns == pytest.approx([0.10, -0.05, 0.20])
    assert found.equity == pytest.approx([1150, 1100, 1045, 1149.5, 1254])  # 25.4 %
    assert found.pnl_cum == pytest.approx([150, 100, 50, 150, 250])
    assert found.bar.tolist() == [10, 11, 12, 13, 14]
    assert not found.ruined
    assert compound(found.fold_returns) == pytest.approx(0.254)


def test_metrics_over_folds() -> None:
    ledgers = [trades_of((2, 100.0, OPEN)), trades_of(), trades_of((1, 200.0, "exit"))]
    found = stitched_metrics(THREE, ledgers, 1000, 252)
    assert found.keys() == METRICS.keys()
    assert found["net_return"] == pytest.approx(0.254)
    assert found["gross_return"] == pytest.approx(0.254)
    assert found["cagr"] == pytest.approx(1.254 ** (365.25 / 5) - 1)
    assert found["max_drawdown"] == pytest.approx(105 / 1150)  # 1150 to 1045
    daily = np.array([0.15, -0.05, -0.05, 0.1, 0.1])  # every fold trades the same capital
    assert found["sharpe"] == pytest.approx(daily.mean() / daily.std(ddof=1) * np.sqrt(252))
    # each fold buys its unit from flat
    assert found["turnover"] == 3
    assert (found["n_trades"], found["n_open"]) == (1, 1)
    assert found["average_trade"] == 150


def test_one_fold_is_its_own_stitching() -> None:
    ledger = trades_of((2, 100.0, "exit"))
    assert stitched_metrics(THREE[:1], [ledger], 1000, 252) == pytest.approx(
        fold_metrics(THREE[0], ledger, 1000, 252)
    )


def test_a_lost_capital_stays_lost() -> None:
    folds = [
        fold_of(10, [100]),
        fold_of(11, [-400, -700, 200, -150]),  # 600, -100, 100, -50: ends below 0
        fold_of(15, [-1100, 2100]),
    ]
    found = stitch(folds, 1000)
    assert found.ruined
    assert found.equity.tolist() == pytest.approx([1100, 660, 0, 0, 0, 0, 0])
    assert not np.signbit(found.equity).any()
    assert found.pnl_cum[-1] == pytest.approx(50)
    assert found.fold_returns == pytest.approx([0.1, -1.05, 1.0])
    assert compound(found.fold_returns) == -1
    metrics = stitched_metrics(folds, [trades_of()] * 3, 1000, 252)
    assert (metrics["net_return"], metrics["max_drawdown"], metrics["ruined"]) == (-1, 1, 1)
    for name in ("cagr", "calmar", "sharpe", "sortino"):
        assert metrics[name] is None


def test_exactly_everything_is_lost() -> None:
    found = stitch([fold_of(0, [-1000]), fold_of(1, [10])], 1000)
    assert (found.ruined, found.equity.tolist()) == (True, [0, 0])


def test_refuses_windows_that_overlap_or_are_missing() -> None:
    with pytest.raises(DataError, match="fold 1 holds bar 11 behind bar 11"):
        stitch([fold_of(10, [1, 1]), fold_of(11, [1])], 1000)
    with pytest.raises(DataError, match="fold 1 holds bar 3 behind bar 10"):
        stitch([fold_of(10, [1]), fold_of(3, [1])], 1000)
    with pytest.raises(DataError, match="fold 0 has no equity rows"):
        stitch([fold_of(10, [])], 1000)
    with pytest.raises(DataError, match="no complete fold"):
        stitch([], 1000)
