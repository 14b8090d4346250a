"""The market: one step of one episode per row, in NumPy float32. This is the definition.

A decision at the close of bar b fills at open[b+1] (or close[b]) and is marked at close[b+1].
`opencl/kernels/market.cl` is the twin: same names, same order of operations, equal bits.
Prices are points above the fold's base. Order inside a step: roll, fill, gross, cost, cash,
ledger, counters, moments, peak, drawdown, reward, end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.market import reward as terms
from backtest.market.fill import (
    DUST,
    at_close,
    order_fill,
    position_change,
    target_position,
)
from backtest.market.layout import COMPONENTS, STATE, STEP, Array, BarFlag, End

ZERO = np.float32(0)


@dataclass(frozen=True)
class Ledger:
    """The trade ledger after a fill; float32[n] each unless noted."""

    entry_price: Array
    trade_pnl: Array
    aux_at_entry: Array
    realized: Array  # currency realised by this step, net of its costs
    closed: Array  # bool[n], a trade closed by the fill
    flipped: Array  # bool[n], and its opposite opened
    result: Array  # currency, net, of the trade that closed, else 0


def book(
    s: Array,
    p: Array,
    q1: Array,
    d: Array,
    price: Array,
    entry: Array,
    trade_cost: Array,
    roll_cost: Array,
    aux: Array,
) -> Ledger:
    """Book one fill into the trade ledger.

    An increase averages the entry price; a reduction realises; a flip closes the old trade
    completely and opens the rest at the fill price. The fill's cost is split by units between
    the two trades of a flip, the roll's cost belongs wholly to the old one.
    """
    q0 = s["position"]
    reduces = q0 * d < 0
    flipped = q0 * q1 < 0
    closed = (q0 != 0) & ((q1 == 0) | flipped)
    units = np.where(reduces, np.where(flipped, q0, -d), ZERO)  # closed, signed as the trade
    realised = units * (price - entry) * p["mult"]
    opens = ((q0 == 0) & (q1 != 0)) | flipped
    adds = (d != 0) & ~reduces
    # a flip's share of the old trade, or an increase's average price: never both
    one = np.float32(1)
    top = np.where(adds, q0 * entry + d * price, q0)
    bottom = np.where(adds, q1, d)
    divides = adds | flipped
    quotient = np.where(divides, top, one) / np.where(divides, bottom, one)
    share = np.where(flipped, -quotient, one)
    old_cost = trade_cost * share + roll_cost
    new_cost = trade_cost - trade_cost * share
    running = s["trade_pnl"] + realised - old_cost
    entry = np.where(adds, quotient, entry)
    entry = np.where(opens, price, entry)
    return Ledger(
        entry_price=np.where(q1 == 0, ZERO, entry),
        trade_pnl=np.where(flipped, -new_cost, np.where(q1 == 0, ZERO, running)),
        aux_at_entry=np.where(q1 == 0, ZERO, np.where(opens, aux, s["aux_at_entry"])),
        realized=realised - (trade_cost + roll_cost),
        closed=closed,
        flipped=flipped,
        result=np.where(closed, running, ZERO),
    )


def ruin(p: Array, s: Array, r: Array, c1: Array, unit: Array, aux: Array) -> tuple[Array, Array]:
    """End episodes whose account fell to its ruin level.

    What is open is lost at the mark, without a further cost.

    Args:
        p: one `MarketParams` record.
        s: `EpisodeState` records [n] after the step.
        r: `StepResult` records [n] of the step, without the reward.
        c1: float32[n], close[b+1].
        unit: float32[n], one over `reward_scale`.
        aux: float32[n], direction forecast at b.

    Returns:
        The states and results after the ruin; arguments are not changed.
    """
    s, r = s.copy(), r.copy()
    q1 = s["position"]
    open_trade = q1 != 0
    unrealised = q1 * (c1 - s["entry_price"]) * p["mult"]
    outcome = terms.trade_outcome(p, s["trade_pnl"] + unrealised, unit)
    calibrated = terms.calibrated(p)
    if calibrated:
        r["asym"] = r["asym"] - terms.loss_penalty(p, open_trade, outcome)
    aux0 = s["aux_at_entry"] if calibrated else aux
    r["r_aux"] = r["r_aux"] + terms.trade_bonus(p, open_trade, aux0, q1, outcome)
    r["segment_complete"] |= open_trade
    r["end"] = End.TERMINATED
    s["cash"] = s["portfolio_val"]
    s["realized_pnl"] = s["realized_pnl"] + unrealised
    for name in ("position", "hold_time", "entry_price", "trade_pnl", "aux_at_entry"):
        s[name] = ZERO
    return s, r


def step(
    p: Array, s: Array, action: Array, bar: Array, nxt: Array, t: Array, last: Array, aux: Array
) -> tuple[Array, Array]:
    """Advance n episodes by one bar.

    Args:
        p: one `MarketParams` record.
        s: `EpisodeState` records [n].
        action: integers [n, 4]: direction, magnitude, order, urgency.
        bar: `Bar` records [n] of the decision bars b.
        nxt: `Bar` records [n] of the bars b+1.
        t: int32[n], steps since each episode's start.
        last: bool[n], the window or the episode ends with this step.
        aux: float32[n], direction forecast at b in [-1, 1].

    Returns:
        The new `EpisodeState` records [n] and the `StepResult` records [n].
    """
    target = target_position(p, s["position"], action)
    urgency = p["urgency"][action[:, 3]]
    return advance(p, s, target, urgency, action[:, 2], bar, nxt, t, last, aux)


def advance(
    p: Array,
    s: Array,
    target: Array,
    urgency: Array,
    order: Array,
    bar: Array,
    nxt: Array,
    t: Array,
    last: Array,
    aux: Array,
) -> tuple[Array, Array]:
    """Advance n episodes towards target positions; see `step`.

    Args:
        p: one `MarketParams` record.
        s: `EpisodeState` records [n].
        target: float32[n], units wanted in the end.
        urgency: float32[n], fraction of the remaining change to trade now.
        order: integers [n], `Order`.
        bar: as for `step`.
        nxt: as for `step`.
        t: as for `step`.
        last: as for `step`.
        aux: as for `step`.
    """
    calibrated = terms.calibrated(p)
    mult, q0 = p["mult"], s["position"]
    c1 = nxt["close"]

    rolled = (nxt["flags"] & BarFlag.ROLL) != 0
    gap = np.where(rolled, nxt["open"] - bar["close"], ZERO)
    c0 = bar["close"] + gap
    entry = np.where(q0 != 0, s["entry_price"] + gap, s["entry_price"])
    cash = s["cash"] - q0 * gap * mult
    roll_fee = p["commission"] + mult * p["half_spread"]
    roll_cost = np.where(rolled, np.float32(2) * np.abs(q0) * roll_fee, ZERO)

    delta = position_change(p, q0, target, urgency)
    d, price = order_fill(p, bar, nxt, c0, delta, order)
    q1 = q0 + d

    gross = mult * (q0 * (c1 - c0) + d * (c1 - price))
    gross = np.where(at_close(p, order), mult * q1 * (c1 - c0), gross)

    crossing = np.where(order == 0, mult * (p["half_spread"] + p["slippage"]), ZERO)
    notional_cost = np.abs(price + p["base"]) * mult * p["tx_cost_multiplier"]
    trade_cost = np.abs(d) * (p["commission"] + crossing + notional_cost)
    tx_cost = trade_cost + roll_cost
    cash = cash - (d * price * mult + tx_cost)
    equity = cash + q1 * c1 * mult

    ledger = book(s, p, q1, d, price, entry, trade_cost, roll_cost, aux)

    dust = np.float32(DUST) * p["max_position"] if calibrated else np.float32(DUST)
    flat = np.abs(q1) < dust
    one = np.float32(1)
    flat_counter = np.where(flat, s["flat_counter"] + one, ZERO)
    held = (
        np.where(ledger.flipped, one, s["hold_time"] + one) if calibrated else s["hold_time"] + one
    )
    hold_time = np.where(flat, ZERO, held)

    scale = terms.reward_scale(p, bar["sigma"])
    unit = one / scale
    exposure = np.abs(q1) * (one / p["max_position"])
    per_equity = one / np.maximum(s["prev_equity"], one)
    R = (gross - tx_cost) * per_equity
    dA = R - s["dsr_A"]
    dB = R * R - s["dsr_B"]
    floor = np.float32(0.1) * scale * per_equity
    dsr = terms.differential_sharpe(p, s["dsr_A"], s["dsr_B"], dA, dB, floor, exposure, t)
    A = s["dsr_A"] + p["dsr_eta"] * dA
    B = s["dsr_B"] + p["dsr_eta"] * dB
    ema = s["pnl_ema"] + p["dsr_eta"] * (gross - s["pnl_ema"])
    surprise = gross - ema
    var = s["pnl_var"] + p["dsr_eta"] * (surprise * surprise - s["pnl_var"])

    peak = np.maximum(s["peak_equity"], equity)
    excess = np.maximum(ZERO, (peak - equity) - p["dd_threshold"] * peak)
    dd_penalty = terms.drawdown_penalty(p, peak, equity, excess, s["dd_excess"], unit)
    dd_excess = np.where(equity >= peak, ZERO, np.maximum(s["dd_excess"], excess))

    pnl_z = terms.pnl_score(p, gross, tx_cost, ema, var, unit)
    outcome = terms.trade_outcome(p, ledger.result, unit)
    if calibrated:
        asym = pnl_z - terms.loss_penalty(p, ledger.closed, outcome)
        rent = np.minimum(hold_time * p["time_decay_rate"] * exposure, p["max_hold_penalty"])
    else:
        asym = np.where(pnl_z >= 0, pnl_z, pnl_z * p["loss_aversion"])
        rent = hold_time * p["time_decay_rate"]
    aux0 = s["aux_at_entry"] if calibrated else aux
    bonus = terms.trade_bonus(p, ledger.closed, aux0, q0, outcome)
    trend, vol = terms.regime(p, bar["adx"], bar["cusum"])
    idle = np.minimum(flat_counter * p["idle_scale"], p["max_idle_penalty"])
    values = (dsr, pnl_z, dd_penalty, idle, trend, vol, asym, rent, tx_cost, bonus)

    result = np.empty(len(s), STEP.dtype)
    for name, value in zip(COMPONENTS, values, strict=True):
        result[name] = value
    result["gross"] = gross
    result["fill_price"] = price
    result["filled"] = d
    result["position"] = q1
    result["equity"] = equity
    result["trade_result"] = ledger.result
    result["segment_complete"] = ledger.closed
    result["end"] = np.where(last, End.TRUNCATED, End.RUNNING)

    new = np.empty(len(s), STATE.dtype)
    new["position"] = q1
    new["cash"] = cash
    new["portfolio_val"] = equity
    new["dsr_A"] = A
    new["dsr_B"] = B
    new["pnl_ema"] = ema
    new["pnl_var"] = var
    new["peak_equity"] = peak
    new["flat_counter"] = flat_counter
    new["prev_equity"] = equity
    new["hold_time"] = hold_time
    new["realized_pnl"] = s["realized_pnl"] + ledger.realized
    new["entry_price"] = ledger.entry_price
    new["trade_pnl"] = ledger.trade_pnl
    new["aux_at_entry"] = ledger.aux_at_entry
    new["dd_excess"] = dd_excess
    ruined = equity <= p["ruin_level"]
    if ruined.any():
        new[ruined], result[ruined] = ruin(
            p, new[ruined], result[ruined], c1[ruined], unit[ruined], aux[ruined]
        )
    result["reward"] = terms.weighted_sum(p, {name: result[name] for name in COMPONENTS})
    return new, result


def reset(p: Array, n: int) -> Array:
    """Return n fresh `EpisodeState` records: flat, with the initial capital as cash and peak."""
    state = np.zeros(n, STATE.dtype)
    for name in ("cash", "portfolio_val", "peak_equity", "prev_equity"):
        state[name] = p["initial_capital"]
    return state
