"""The market with the calibrated reward as one would write it in parallel numba.

Another twin of `backtest/market/step.py`: same names, same order of operations, float32, no fast
math. One thread walks a block of episodes, static schedule, state in locals; what a kernel's
compiler knows is given to numba too: parameters come by value, and nothing allocates in the loop.
Only the calibrated formula and fills at the next open are written out.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import get_num_threads, njit, prange

from backtest.market.fill import DUST
from backtest.market.layout import PARAMS, STATE, Array, BarFlag, Direction, Fill, Formula
from backtest.market.reward import DSR_WARMUP, Z_LIMIT
from backtest.rng import MULTIPLIERS, ROUNDS, WEYL

# float32 and uint32 constants: a Python number would make numba calculate in 64 bits
F = np.float32
ZERO, TENTH, HALF, ONE, TWO = F(0), F(0.1), F(0.5), F(1), F(2)
THREE_HALVES, ADX_REFERENCE, LIMIT, DUST32 = F(1.5), F(25), F(Z_LIMIT), F(DUST)
ROLL, NO_VOLUME = np.uint32(BarFlag.ROLL), np.uint32(BarFlag.NO_VOLUME)
SHORT, HOLD, LONG = int(Direction.SHORT), int(Direction.HOLD), int(Direction.LONG)
M0, M1 = (np.uint64(m) for m in MULTIPLIERS)
W0, W1 = (np.uint32(w) for w in WEYL)
LOW, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
inline = njit(forceinline=True, error_model="numpy", fastmath=False)

# flat: numba hands a loop's threads tuples of numbers only, so `magnitude` becomes three fields
Params = namedtuple(
    "Params",
    [f"{name}{i}" if size > 1 else name for name, _, size in PARAMS.fields for i in range(size)],
)
State = namedtuple("State", [name for name, _, _ in STATE.fields])


def parameters(record: Array) -> Params:
    """Return `MarketParams` as what numba passes by value.

    Raises:
        ValueError: parameters that this twin does not know.
    """
    if record["formula"] != Formula.CALIBRATED or record["fill"] != Fill.NEXT_OPEN:
        raise ValueError("the numba market knows the calibrated reward and the next open only")
    return Params(*(x for name, _, _ in PARAMS.fields for x in record[name].ravel()))


@inline
def _philox4x32_10(c0, c1, c2, c3, k0, k1):
    for _ in range(ROUNDS):
        p0, p1 = np.uint64(c0) * M0, np.uint64(c2) * M1
        c0, c1 = np.uint32((p1 >> WORD) ^ c1 ^ k0), np.uint32(p1 & LOW)
        c2, c3 = np.uint32((p0 >> WORD) ^ c3 ^ k1), np.uint32(p0 & LOW)
        k0, k1 = np.uint32(k0 + W0), np.uint32(k1 + W1)
    return c0, c1, c2, c3


@inline
def _clip(x, low, high):
    return min(max(x, low), high)


@inline
def _one_of(first, second, third, i):
    return first if i == 0 else (second if i == 1 else third)


@inline
def _sign(x):
    return ONE if x > ZERO else (-ONE if x < ZERO else ZERO)


@inline
def _loss_penalty(p, closed, outcome):
    loss = min(max(ZERO, -outcome), LIMIT)
    return (p.loss_aversion - ONE) * loss if closed else ZERO


@inline
def _trade_bonus(p, closed, aux, side, outcome):
    profit = min(max(ZERO, outcome), LIMIT)
    return p.scale_beta * max(ZERO, aux * side) * profit if closed else ZERO


@inline
def _position_change(p, position, target, urgency):
    delta = (target - position) * urgency
    if p.lot_size > ZERO:
        delta = F(np.trunc(delta / p.lot_size)) * p.lot_size
    return -position if abs(position + delta) < DUST32 * p.max_position else delta


@inline
def _order_fill(p, bars, flags, b, c0, delta, order):
    n = b + 1
    buy = delta > ZERO
    distance = _one_of(p.offset0, p.offset1, p.offset2, order) * bars[b, 4]
    limit = c0 - distance if buy else c0 + distance
    through = bars[n, 2] < limit if buy else bars[n, 1] > limit
    better = min(limit, bars[n, 0]) if buy else max(limit, bars[n, 0])
    fills = delta != ZERO and (flags[n] & NO_VOLUME) == 0 and (order == 0 or through)
    price = (bars[n, 0] if order == 0 else better) if fills else bars[n, 3]
    return (delta if fills else ZERO), price


@inline
def _step(p, s, pick, bars, flags, b, t, aux):
    """Advance one episode; return its state, the reward and whether it is ruined."""
    direction, rest = pick & 3, pick >> 2
    magnitude, order, urgency = rest % 3, rest // 3 % 3, rest // 9
    size = _one_of(p.magnitude0, p.magnitude1, p.magnitude2, magnitude) * p.max_position
    target = -size if direction == SHORT else (size if direction == LONG else ZERO)
    target = s.position if direction == HOLD else target

    q0, c1 = s.position, bars[b + 1, 3]
    rolled = (flags[b + 1] & ROLL) != 0
    gap = bars[b + 1, 0] - bars[b, 3] if rolled else ZERO
    c0 = bars[b, 3] + gap
    entry = s.entry_price + gap if q0 != ZERO else s.entry_price
    cash = s.cash - q0 * gap * p.mult
    roll_fee = p.commission + p.mult * p.half_spread
    roll_cost = TWO * abs(q0) * roll_fee if rolled else ZERO

    part = _one_of(p.urgency0, p.urgency1, p.urgency2, urgency)
    delta = _position_change(p, q0, target, part)
    d, price = _order_fill(p, bars, flags, b, c0, delta, order)
    q1 = q0 + d
    gross = p.mult * (q0 * (c1 - c0) + d * (c1 - price))
    crossing = p.mult * (p.half_spread + p.slippage) if order == 0 else ZERO
    notional_cost = abs(price + p.base) * p.mult * p.tx_cost_multiplier
    trade_cost = abs(d) * (p.commission + crossing + notional_cost)
    tx_cost = trade_cost + roll_cost
    cash = cash - (d * price * p.mult + tx_cost)
    equity = cash + q1 * c1 * p.mult

    # ledger
    reduces, flipped = q0 * d < ZERO, q0 * q1 < ZERO
    closed = q0 != ZERO and (q1 == ZERO or flipped)
    units = min(abs(d), abs(q0)) if reduces else ZERO
    realised = units * (price - entry) * p.mult * _sign(q0)
    share = abs(q0) / abs(d) if flipped else ONE
    running = s.trade_pnl + realised - (trade_cost * share + roll_cost)
    opens = (q0 == ZERO and q1 != ZERO) or flipped
    adds = d != ZERO and not reduces
    entry = (q0 * entry + d * price) / q1 if adds else entry
    entry = ZERO if q1 == ZERO else (price if opens else entry)
    kept = ZERO if q1 == ZERO else running
    trade_pnl = -(trade_cost - trade_cost * share) if flipped else kept
    entered = ZERO if q1 == ZERO else (aux if opens else s.aux_at_entry)
    result = running if closed else ZERO

    flat = abs(q1) < DUST32 * p.max_position
    flat_counter = s.flat_counter + ONE if flat else ZERO
    hold_time = ZERO if flat else (ONE if flipped else s.hold_time + ONE)
    scale = max(bars[b, 4], p.tick_size) * p.mult * p.max_position
    equity0 = max(s.prev_equity, ONE)
    R = (gross - tx_cost) / equity0
    dA, dB = R - s.dsr_A, R * R - s.dsr_B
    floor = TENTH * scale / equity0
    x = max(s.dsr_B - s.dsr_A * s.dsr_A, floor * floor)
    dsr = (s.dsr_B * dA - HALF * s.dsr_A * dB) / (x * np.sqrt(x))
    dsr = ZERO if t < DSR_WARMUP else _clip(dsr, -ONE, ONE) * (abs(q1) / p.max_position)
    ema = s.pnl_ema + p.dsr_eta * (gross - s.pnl_ema)
    surprise = gross - ema

    peak = max(s.peak_equity, equity)
    excess = max(ZERO, (peak - equity) - p.dd_threshold * peak)
    dd_penalty = min(max(ZERO, excess - s.dd_excess) / scale, LIMIT)
    ruined = equity <= p.ruin_level
    open_trade = ruined and q1 != ZERO
    unrealised = q1 * (c1 - entry) * p.mult
    ruin_result = trade_pnl + unrealised if open_trade else ZERO

    outcome, ruin_outcome = result / scale, ruin_result / scale
    asym = _clip((gross - tx_cost) / scale, -LIMIT, LIMIT) - _loss_penalty(p, closed, outcome)
    asym = asym - _loss_penalty(p, open_trade, ruin_outcome)
    rent = hold_time * p.time_decay_rate * abs(q1) / p.max_position
    r_aux = _trade_bonus(p, closed, s.aux_at_entry, _sign(q0), outcome)
    r_aux = r_aux + _trade_bonus(p, open_trade, entered, _sign(q1), ruin_outcome)
    trend = _clip(bars[b, 5] / ADX_REFERENCE, HALF, TWO)
    vol = _clip(bars[b, 6] / p.cusum_ref, HALF, TWO)
    reward = p.w_dsr * _clip(TWO - trend, HALF, THREE_HALVES) * dsr
    reward = reward + p.w_pnl * trend * asym
    reward = reward - p.w_dd * vol * dd_penalty
    reward = reward - p.w_idle * min(flat_counter * p.idle_scale, p.max_idle_penalty)
    reward = reward - min(rent, p.max_hold_penalty) + r_aux

    earned = realised - (trade_cost + roll_cost)
    new = State(
        ZERO if ruined else q1,
        equity if ruined else cash,
        equity,
        s.dsr_A + p.dsr_eta * dA,
        s.dsr_B + p.dsr_eta * dB,
        ema,
        s.pnl_var + p.dsr_eta * (surprise * surprise - s.pnl_var),
        peak,
        flat_counter,
        equity,
        ZERO if ruined else hold_time,
        s.realized_pnl + earned + (unrealised if open_trade else ZERO),
        ZERO if ruined else entry,
        ZERO if ruined else trade_pnl,
        ZERO if ruined else entered,
        ZERO if equity >= peak else max(s.dd_excess, excess),
    )
    return new, reward, ruined


@njit(parallel=True, error_model="numpy", fastmath=False)
def random_walk(p, bars, flags, aux, start, key, stage_round, rewards, final):
    """Walk episodes under random actions; twin of `random_sim_kernel`.

    Args:
        p: `Params`.
        bars: float32[n_bars, 8], `Bar` records.
        flags: uint32[n_bars], their last column.
        aux: float32[n_bars].
        start: int64[n], rows.
        key: uint32[2].
        stage_round: uint32, counter word 0.
        rewards: float32[steps, n], written.
        final: float32[n, 16], `EpisodeState` records, written.
    """
    steps, n = rewards.shape
    blocks = get_num_threads()
    for block in prange(blocks):
        for i in range(block * n // blocks, (block + 1) * n // blocks):
            cash = p.initial_capital
            s = State(
                ZERO, cash, cash, ZERO, ZERO, ZERO, ZERO, cash,
                ZERO, cash, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO,
            )  # fmt: skip
            t = 0
            for t4 in range(0, steps, 4):
                words = _philox4x32_10(
                    stage_round, np.uint32(i), np.uint32(t4), np.uint32(0), key[0], key[1]
                )
                for word in words:
                    if t < steps:
                        pick = np.int32((np.uint64(word) * np.uint64(108)) >> WORD)
                        b = start[i] + t
                        s, rewards[t, i], ruined = _step(p, s, pick, bars, flags, b, t, aux[b])
                        t += 1
                        if ruined:
                            rewards[t:, i] = ZERO
                            t = steps
            for k, value in enumerate(s):
                final[i, k] = value
