"""The composite reward, literal and calibrated: each term a function of float32 arrays.

`opencl/kernels/reward.cl` is the twin, same names, same order. `x^1.5` is `x*sqrt(x)`; there is
no transcendental function here, so every device returns the same bits.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import Array, Formula

DSR_WARMUP = 50  # steps in which the calibrated differential Sharpe ratio is 0
Z_LIMIT = 5.0  # clip of the calibrated z, trade loss, trade profit and drawdown, in scales


def calibrated(p: Array) -> bool:
    """Return whether the calibrated formula is active."""
    return bool(p["formula"] == Formula.CALIBRATED)


def reward_scale(p: Array, sigma: Array) -> Array:
    """Return one sigma (at least a tick) of a full position in currency, float32[n]."""
    scale: Array = np.maximum(sigma, p["tick_size"]) * p["mult"] * p["max_position"]
    return scale


def differential_sharpe(
    p: Array,
    A: Array,
    B: Array,
    dA: Array,
    dB: Array,
    floor: Array,
    exposure: Array,
    t: Array,
) -> Array:
    """Return the differential Sharpe ratio of the step (Moody & Saffell 2001), float32[n].

    Args:
        p: one `MarketParams` record.
        A: moving first moment of returns before the step.
        B: moving second moment of returns before the step.
        dA: return minus A.
        dB: squared return minus B.
        floor: a tenth of a `reward_scale` as a return: the least deviation (calibrated).
        exposure: |position|/max_position after the fill.
        t: int32[n], steps since the episode's start.
    """
    numerator = B * dA - np.float32(0.5) * A * dB
    variance = B - A * A
    if not calibrated(p):
        x = np.maximum(np.abs(variance), p["dsr_epsilon"])
        dsr: Array = numerator / (x * np.sqrt(x))
        return dsr
    x = np.maximum(variance, floor * floor)
    dsr = clip(numerator / (x * np.sqrt(x)), -1.0, 1.0) * exposure
    return np.where(t < DSR_WARMUP, np.float32(0), dsr)


def pnl_score(p: Array, gross: Array, tx_cost: Array, ema: Array, var: Array, unit: Array) -> Array:
    """Return the step's PnL as a z-score, float32[n]; literal: of the policy's own history."""
    if calibrated(p):
        return clip((gross - tx_cost) * unit, -Z_LIMIT, Z_LIMIT)
    z: Array = (gross - ema) / np.sqrt(var + np.float32(1e-8))
    return z


def drawdown_penalty(
    p: Array, peak: Array, equity: Array, excess: Array, dd_excess: Array, unit: Array
) -> Array:
    """Return the drawdown term, float32[n]; calibrated: only what deepens the drawdown.

    Args:
        p: one `MarketParams` record.
        peak: running peak of equity including this step.
        equity: equity after the step.
        excess: drawdown beyond the threshold, currency.
        dd_excess: deepest such excess since the last peak, before this step.
        unit: one over `reward_scale`.
    """
    zero = np.float32(0)
    penalty: Array
    if calibrated(p):
        penalty = np.minimum(np.maximum(zero, excess - dd_excess) * unit, np.float32(Z_LIMIT))
        return penalty
    depth = np.where(peak > 0, (peak - equity) / np.where(peak > 0, peak, np.float32(1)), zero)
    penalty = np.maximum(zero, depth - p["dd_threshold"])
    return penalty


def trade_outcome(p: Array, result: Array, unit: Array) -> Array:
    """Return a closed trade's result as the reward counts it: in scales; literal: in currency."""
    return result * unit if calibrated(p) else result


def loss_penalty(p: Array, closed: Array, outcome: Array) -> Array:
    """Return the calibrated extra charge of a trade that closed at a loss, float32[n]."""
    loss = np.minimum(np.maximum(np.float32(0), -outcome), np.float32(Z_LIMIT))
    charge = (p["loss_aversion"] - np.float32(1)) * loss
    return np.where(closed, charge, np.float32(0))


def trade_bonus(p: Array, closed: Array, aux: Array, position: Array, outcome: Array) -> Array:
    """Return r_aux of one closed trade, float32[n], never negative.

    Args:
        p: one `MarketParams` record.
        closed: bool[n].
        aux: float32[n], the forecast that counts: at the close (literal), at entry (calibrated).
        position: float32[n], the one that closed, units.
        outcome: float32[n], see `trade_outcome`.
    """
    zero = np.float32(0)
    alignment = np.maximum(zero, np.where(position > 0, aux, -aux))
    profit = np.maximum(zero, outcome)
    if calibrated(p):
        profit = np.minimum(profit, np.float32(Z_LIMIT))
    return np.where(closed, p["scale_beta"] * alignment * profit, zero)


def regime(p: Array, adx: Array, cusum: Array) -> tuple[Array, Array]:
    """Return (trend, vol) factors in [0.5, 2] from the raw ADX (0-100) and the raw CUSUM."""
    one = np.float32(1)
    reference = p["cusum_ref"] if calibrated(p) else np.float32(0.5)
    vol = clip(cusum * (one / reference), 0.5, 2.0)
    return clip(adx * (one / np.float32(25)), 0.5, 2.0), vol


def weighted_terms(p: Array, c: dict[str, Array]) -> dict[str, Array]:
    """Return the signed, weighted terms of the sum in its order, each float32[n].

    Args:
        p: one `MarketParams` record.
        c: the unweighted components by name.
    """
    two = np.float32(2)
    balance = two - c["trend"]
    if calibrated(p):
        balance = clip(balance, 0.5, 1.5)
    terms = {
        "dsr": p["w_dsr"] * balance * c["dsr"],
        "asym": p["w_pnl"] * c["trend"] * c["asym"],
        "dd_penalty": -(p["w_dd"] * c["vol"] * c["dd_penalty"]),
        "idle": -(p["w_idle"] * c["idle"]),
        "hold_rent": -c["hold_rent"],
    }
    if not calibrated(p):
        terms["tx_cost"] = -c["tx_cost"]
    terms["r_aux"] = c["r_aux"]
    return terms


def weighted_sum(p: Array, c: dict[str, Array]) -> Array:
    """Return the reward: the weighted terms added left to right, float32[n]."""
    terms = list(weighted_terms(p, c).values())
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def clip(x: Array, low: float, high: float) -> Array:
    """Clamp to [low, high] as `fmin(fmax(x, low), high)` does."""
    return np.minimum(np.maximum(x, np.float32(low)), np.float32(high))
