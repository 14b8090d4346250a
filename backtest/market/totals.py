"""What a strategy adds up to over an episode: PnL, drawdown, costs, trades, squares of PnL.

Counted step by step as the kernel does; `opencl/kernels/totals.cl` is the twin, same names, same
order, equal bits. Sums are compensated: a plain float32 sum of a million bars keeps three digits.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import TOTALS, Array, End
from backtest.market.tape import Tape
from backtest.market.walk import Walk

COMPENSATED = ("costs", "turnover", "square_pnl", "square_loss")


def walk_totals(tape: Tape, walk: Walk) -> Array:
    """Return the `StrategyTotals` records [N] of a walk; rows after an end count nothing."""
    steps, n = walk.result.shape
    totals = np.zeros(n, TOTALS.dtype)
    lost = {name: np.zeros(n, np.float32) for name in COMPENSATED}
    for t in range(steps):
        before, after, result = walk.state[t], walk.state[t + 1], walk.result[t]
        living = result["end"] != End.DEAD
        counted, rest = count_step(
            totals, lost, result, before["prev_equity"], after["peak_equity"]
        )
        totals = np.where(living, counted, totals)
        lost = {name: np.where(living, rest[name], lost[name]) for name in COMPENSATED}
    totals["net_pnl"] = walk.state[-1]["portfolio_val"] - tape.params["initial_capital"]
    return totals


def count_step(
    totals: Array, lost: dict[str, Array], r: Array, equity0: Array, peak: Array
) -> tuple[Array, dict[str, Array]]:
    """Count one living step.

    Args:
        totals: `StrategyTotals` records [n].
        lost: float32[n] by name, what rounding took from each compensated sum.
        r: `StepResult` records [n].
        equity0: float32[n], equity before the step, currency.
        peak: float32[n], highest equity up to the step's end, currency.

    Returns:
        Totals and lost parts after the step.
    """
    k, lost = totals.copy(), dict(lost)
    pnl = r["equity"] - equity0
    loss = np.minimum(pnl, np.float32(0))
    k["max_drawdown"] = np.maximum(k["max_drawdown"], peak - r["equity"])
    added = (r["tx_cost"], np.abs(r["filled"]), pnl * pnl, loss * loss)
    for name, x in zip(COMPENSATED, added, strict=True):
        k[name], lost[name] = add(k[name], x, lost[name])
    k["bars"] += 1
    k["exposed"] += r["position"] != 0
    k["trades"] += r["segment_complete"]
    k["wins"] += r["trade_result"] > 0
    k["end"] = r["end"]
    return k, lost


def add(total: Array, x: Array, lost: Array) -> tuple[Array, Array]:
    """Return a compensated sum and what rounding took from it (Kahan 1965), float32[n] each."""
    y = x - lost
    after = total + y
    return after, (after - total) - y


def sharpe_ratio(totals: Array, bars_per_year: float) -> Array:
    """Return the annualised Sharpe ratio (ddof 1) of the PnL a bar, float64[n]; nan if undefined.

    Args:
        totals: `StrategyTotals` records [n].
        bars_per_year: decisions a year.
    """
    bars = totals["bars"].astype(np.float64)
    mean = totals["net_pnl"] / bars
    variance = np.maximum(totals["square_pnl"] / bars - mean**2, 0)
    deviation = np.sqrt(variance * bars / np.maximum(bars - 1, 1))
    ratio: Array = np.full(len(totals), np.nan)
    np.divide(mean * np.sqrt(bars_per_year), deviation, where=deviation > 0, out=ratio)
    return ratio
