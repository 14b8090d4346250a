"""One out-of-sample record from many folds: their returns compound, their PnL adds up beside it.

Each fold trades the initial capital anew, so +10 %, -5 % and +20 % grow it by 25.4 % in all, while
the additive PnL is 25 % of it. A fold that loses all its capital ends the compounding at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtest.errors import DataError
from backtest.evaluation.metrics import (
    Columns,
    Sample,
    check_rows,
    daily_returns,
    evaluate,
    floats,
    turnover,
)
from backtest.evaluation.ratios import Floats


@dataclass(frozen=True)
class Stitched:
    """Rows of all folds, one behind the other."""

    bar: npt.NDArray[np.int64]  # (n,)
    session: npt.NDArray[np.int32]  # (n,) days since 1970
    equity: Floats  # (n,) currency, compounded; 0 from a ruin on
    pnl_cum: Floats  # (n,) currency, additive
    fold_returns: Floats  # (k,) fractions of the initial capital
    ruined: bool


def compound(returns: Floats) -> float:
    """Return the product of (1 + r) - 1; -1 once a return is -1 or less."""
    return -1.0 if np.any(returns <= -1) else float(np.prod(1 + returns)) - 1


def stitch(folds: Sequence[Columns], initial_capital: float) -> Stitched:
    """Stitch the equity rows of complete folds.

    Args:
        folds: for each fold the columns of `metrics.EQUITY_COLUMNS`, at least one row; test
            windows in the order of time.
        initial_capital: currency, at the start of every fold.

    Raises:
        DataError: no fold, a fold without rows, or windows that overlap or go back in time.
    """
    if not folds:
        raise DataError("no complete fold to stitch; see the status column of the fold table")
    growth, ruined = 1.0, False
    equity: list[Floats] = []
    returns: list[float] = []
    last = -1
    for index, rows in enumerate(folds):
        check_rows(rows, initial_capital)
        bars = np.asarray(rows["bar"], np.int64)
        if not len(bars):
            raise DataError(f"fold {index} has no equity rows; evaluate it again")
        if bars[0] <= last or np.any(np.diff(bars) <= 0):
            raise DataError(
                f"fold {index} holds bar {bars[0]} behind bar {last}: test windows must follow "
                "each other without overlap"
            )
        last = int(bars[-1])
        path = floats(rows, "equity") / initial_capital
        returns.append(float(path[-1]) - 1)
        if path[-1] <= 0:
            # what is lost stays lost, even where the path would come back above 0
            path = np.where(np.maximum.accumulate(path <= 0), 0.0, path)
            ruined = True
        # + 0.0: after a ruin 0, not -0
        equity.append(initial_capital * growth * path + 0.0)
        growth *= float(path[-1])
    return Stitched(
        bar=np.concatenate([np.asarray(rows["bar"], np.int64) for rows in folds]),
        session=np.concatenate([np.asarray(rows["session"], np.int32) for rows in folds]),
        equity=np.concatenate(equity),
        pnl_cum=np.cumsum(np.concatenate([floats(rows, "pnl") for rows in folds])),
        fold_returns=np.array(returns),
        ruined=ruined,
    )


def stitched_metrics(
    folds: Sequence[Columns],
    trades: Sequence[Columns],
    initial_capital: float,
    sessions_per_year: float,
) -> dict[str, float | None]:
    """Return every metric over all folds.

    Returns, CAGR and drawdown come from the compounded equity; ratios of daily returns come from
    the PnL over the initial capital, which every fold starts with. After a ruin there is no track
    record: CAGR, Calmar, Sharpe and Sortino are None.

    Args:
        folds: see `stitch`.
        trades: for each fold the columns of `metrics.TRADE_COLUMNS`.
        initial_capital: currency, at the start of every fold.
        sessions_per_year: of the instrument's calendar.

    Raises:
        DataError: see `stitch`.
        ConfigError: see `metrics.fold_metrics`.
    """
    stitched = stitch(folds, initial_capital)
    pnl = np.concatenate([floats(rows, "pnl") for rows in folds])
    returns, days = daily_returns(stitched.session, pnl, initial_capital)
    gross = [floats(rows, "gross") for rows in folds]
    position = [floats(rows, "position") for rows in folds]
    columns = {
        "pnl": np.concatenate([floats(ledger, "pnl") for ledger in trades]),
        "bars": np.concatenate([floats(ledger, "bars") for ledger in trades]),
        "reason": np.concatenate([np.asarray(ledger["reason"], np.str_) for ledger in trades]),
    }
    return evaluate(
        Sample(
            equity=stitched.equity,
            gross=np.concatenate(gross),
            cost=np.concatenate([floats(rows, "cost") for rows in folds]),
            position=np.concatenate(position),
            returns=returns,
            days=days,
            # every fold starts flat
            traded=sum(turnover(p) for p in position),
            gross_return=compound(np.array([np.sum(g) for g in gross]) / initial_capital),
            trades=columns,
            initial_capital=initial_capital,
            sessions_per_year=sessions_per_year,
            ruined=stitched.ruined,
        )
    )
