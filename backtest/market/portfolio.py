"""The portfolio part of the state vector: what the policy knows of its own account.

NumPy float32 over episodes; `opencl/kernels/portfolio.cl` is the twin. log1p may differ by an ulp
between devices, so this part has the network's tolerance, not the market's exactness.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import N_PORTFOLIO, Array
from backtest.market.reward import DSR_WARMUP, calibrated, clip, reward_scale

HOLD_UNIT = float(1 / np.log1p(1000.0))  # slots 114 and 115 are 1 after 1,000 bars
STATE_LIMIT = 10.0  # clip of every portfolio slot


def portfolio_state(p: Array, s: Array, bar: Array, t: Array) -> Array:
    """Return slots 112-120 and 122-125 of the state at bar b, float32[n, 13].

    Args:
        p: one `MarketParams` record.
        s: `EpisodeState` records [n] before the decision at bar b.
        bar: `Bar` records [n] of the decision bars.
        t: int32[n], steps since each episode's start.
    """
    scale = reward_scale(p, bar["sigma"])
    unit = np.float32(HOLD_UNIT)
    move = bar["close"] - s["entry_price"]
    out = np.empty((len(s), N_PORTFOLIO), np.float32)
    out[:, 0] = s["position"] / p["max_position"]
    out[:, 1] = s["position"] * move * p["mult"] / scale
    out[:, 2] = np.log1p(s["hold_time"]) * unit
    out[:, 3] = np.log1p(s["flat_counter"]) * unit
    peak, equity = s["peak_equity"], s["prev_equity"]
    out[:, 4] = (peak - equity) / (p["dd_threshold"] * peak)
    out[:, 5] = (equity - p["initial_capital"]) / (np.float32(100) * scale)
    out[:, 6] = s["trade_pnl"] / scale
    out[:, 7] = s["dd_excess"] / scale
    out[:, 8] = np.minimum(t, DSR_WARMUP).astype(np.float32) / np.float32(DSR_WARMUP)
    out[:, 9] = s["dsr_A"] * equity / scale
    out[:, 10] = np.sqrt(np.maximum(s["dsr_B"], np.float32(0))) * equity / scale
    if calibrated(p):
        points = move / np.maximum(bar["sigma"], p["tick_size"])
        out[:, 11] = np.where(s["position"] != 0, points, np.float32(0))
        out[:, 12] = s["aux_at_entry"]
    else:
        out[:, 11] = s["pnl_ema"] / scale
        out[:, 12] = np.sqrt(s["pnl_var"]) / scale
    return clip(out, -STATE_LIMIT, STATE_LIMIT)
