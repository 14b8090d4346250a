"""The market with the calibrated reward in parallel numba, as fast as we could write it.

Another twin of `backtest/market/step.py`: same names, same order of operations, float32, no fast
math, parameters by value. A thread walks blocks of `LANES` episodes, static schedule; the episodes
of a block stand side by side, and the loop over them is written so that LLVM makes vector
instructions of it: what a step needs is gathered into rows first; branches of an action are floats,
since compared integers become a switch; and the square root is the intrinsic, since numba's own may
set errno. One episode after the other, the natural way to write it, is several times slower.
Only the calibrated formula and fills at the next open are written out.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

from backtest.market.fill import DUST
from backtest.market.layout import PARAMS, STATE, Array, BarFlag, Direction, Fill, Formula
from backtest.market.reward import DSR_WARMUP, Z_LIMIT
from backtest.rng import MULTIPLIERS, ROUNDS, WEYL

# float32 and uint32 constants: a Python number would make numba calculate in 64 bits
F = np.float32
ZERO, TENTH, HALF, ONE, TWO = F(0), F(0.1), F(0.5), F(1), F(2)
THREE_HALVES, ADX_REFERENCE, LIMIT, DUST32 = F(1.5), F(25), F(Z_LIMIT), F(DUST)
ROLL, NO_VOLUME = np.int32(BarFlag.ROLL), np.int32(BarFlag.NO_VOLUME)
THREE, TWO_BITS = np.int32(3), np.int32(2)
SHORT, HOLD, LONG = F(Direction.SHORT), F(Direction.HOLD), F(Direction.LONG)
M0, M1 = (np.uint64(m) for m in MULTIPLIERS)
W0, W1 = (np.uint32(w) for w in WEYL)
LOW, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
LANES = 64  # episodes side by side
# Rows of what a step reads: `Bar`'s numbers of this bar, the prices of the next, the forecast.
NEXT, AUX, N_TAPE = 7, 11, 12
N_STATE = len(STATE.fields)
CAPITAL = tuple(
    STATE.dtype.names.index(name)
    for name in ("cash", "portfolio_val", "peak_equity", "prev_equity")
)
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


@intrinsic
def _sqrt(typing_context, x):
    def code(context, builder, signature, arguments):
        root = builder.module.declare_intrinsic("llvm.sqrt", [ir.FloatType()])
        return builder.call(root, arguments)

    return types.float32(types.float32), code


@inline
def _clip(x, low, high):
    return min(max(x, low), high)


@inline
def _one_of(first, second, third, i):
    return first if i == ZERO else (second if i == ONE else third)


@inline
def _loss_penalty(p, closed, outcome):
    loss = min(max(ZERO, -outcome), LIMIT)
    return (p.loss_aversion - ONE) * loss if closed else ZERO


@inline
def _trade_bonus(p, closed, aux, position, outcome):
    alignment = max(ZERO, aux if position > ZERO else -aux)
    profit = min(max(ZERO, outcome), LIMIT)
    return p.scale_beta * alignment * profit if closed else ZERO


@inline
def _position_change(p, position, target, urgency):
    delta = (target - position) * urgency
    if p.lot_size > ZERO:
        delta = F(np.trunc(delta / p.lot_size)) * p.lot_size
    return -position if abs(position + delta) < DUST32 * p.max_position else delta


@inline
def _step(p, s, action, flags, bar, nxt, t, aux):
    """Advance one episode; return its state, the reward and whether it is ruined."""
    open1, high1, low1, c1 = nxt
    close, sigma, adx, cusum = bar
    direction, magnitude, order, urgency = action
    size = _one_of(p.magnitude0, p.magnitude1, p.magnitude2, magnitude) * p.max_position
    target = -size if direction == SHORT else (size if direction == LONG else ZERO)
    target = s.position if direction == HOLD else target

    q0 = s.position
    rolled = (flags & ROLL) != 0
    gap = open1 - close if rolled else ZERO
    c0 = close + gap
    entry = s.entry_price + gap if q0 != ZERO else s.entry_price
    cash = s.cash - q0 * gap * p.mult
    roll_fee = p.commission + p.mult * p.half_spread
    roll_cost = TWO * abs(q0) * roll_fee if rolled else ZERO

    part = _one_of(p.urgency0, p.urgency1, p.urgency2, urgency)
    delta = _position_change(p, q0, target, part)
    market, buy = order == ZERO, delta > ZERO
    distance = _one_of(p.offset0, p.offset1, p.offset2, order) * sigma
    limit = c0 - distance if buy else c0 + distance
    through = low1 < limit if buy else high1 > limit
    better = min(limit, open1) if buy else max(limit, open1)
    fills = (delta != ZERO) & ((flags & NO_VOLUME) == 0) & (market | through)
    price = (open1 if market else better) if fills else c1
    d = delta if fills else ZERO
    q1 = q0 + d
    gross = p.mult * (q0 * (c1 - c0) + d * (c1 - price))
    crossing = p.mult * (p.half_spread + p.slippage) if market else ZERO
    notional_cost = abs(price + p.base) * p.mult * p.tx_cost_multiplier
    trade_cost = abs(d) * (p.commission + crossing + notional_cost)
    tx_cost = trade_cost + roll_cost
    cash = cash - (d * price * p.mult + tx_cost)
    equity = cash + q1 * c1 * p.mult

    # ledger
    reduces, flipped = q0 * d < ZERO, q0 * q1 < ZERO
    closed = (q0 != ZERO) & ((q1 == ZERO) | flipped)
    units = (q0 if flipped else -d) if reduces else ZERO
    realised = units * (price - entry) * p.mult
    opens = ((q0 == ZERO) & (q1 != ZERO)) | flipped
    adds = (d != ZERO) & (not reduces)
    top = q0 * entry + d * price if adds else q0
    bottom = q1 if adds else d
    divides = adds | flipped
    quotient = (top if divides else ONE) / (bottom if divides else ONE)
    share = -quotient if flipped else ONE
    running = s.trade_pnl + realised - (trade_cost * share + roll_cost)
    entry = quotient if adds else entry
    entry = ZERO if q1 == ZERO else (price if opens else entry)
    kept = ZERO if q1 == ZERO else running
    trade_pnl = -(trade_cost - trade_cost * share) if flipped else kept
    entered = ZERO if q1 == ZERO else (aux if opens else s.aux_at_entry)
    result = running if closed else ZERO

    flat = abs(q1) < DUST32 * p.max_position
    flat_counter = s.flat_counter + ONE if flat else ZERO
    hold_time = ZERO if flat else (ONE if flipped else s.hold_time + ONE)
    scale = max(sigma, p.tick_size) * p.mult * p.max_position
    unit = ONE / scale
    exposure = abs(q1) * (ONE / p.max_position)
    per_equity = ONE / max(s.prev_equity, ONE)
    R = (gross - tx_cost) * per_equity
    dA, dB = R - s.dsr_A, R * R - s.dsr_B
    floor = TENTH * scale * per_equity
    x = max(s.dsr_B - s.dsr_A * s.dsr_A, floor * floor)
    dsr = (s.dsr_B * dA - HALF * s.dsr_A * dB) / (x * _sqrt(x))
    dsr = ZERO if t < DSR_WARMUP else _clip(dsr, -ONE, ONE) * exposure
    ema = s.pnl_ema + p.dsr_eta * (gross - s.pnl_ema)
    surprise = gross - ema

    peak = max(s.peak_equity, equity)
    excess = max(ZERO, (peak - equity) - p.dd_threshold * peak)
    dd_penalty = min(max(ZERO, excess - s.dd_excess) * unit, LIMIT)
    ruined = equity <= p.ruin_level
    open_trade = ruined & (q1 != ZERO)
    unrealised = q1 * (c1 - entry) * p.mult
    ruin_result = trade_pnl + unrealised if open_trade else ZERO

    outcome, ruin_outcome = result * unit, ruin_result * unit
    asym = _clip((gross - tx_cost) * unit, -LIMIT, LIMIT) - _loss_penalty(p, closed, outcome)
    asym = asym - _loss_penalty(p, open_trade, ruin_outcome)
    rent = hold_time * p.time_decay_rate * exposure
    r_aux = _trade_bonus(p, closed, s.aux_at_entry, q0, outcome)
    r_aux = r_aux + _trade_bonus(p, open_trade, entered, q1, ruin_outcome)
    trend = _clip(adx * (ONE / ADX_REFERENCE), HALF, TWO)
    vol = _clip(cusum * (ONE / p.cusum_ref), HALF, TWO)
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


@inline
def _advance(p, account, alive, actions, flags, tape, t, reward):
    """Advance the episodes of a block by one bar; a dead one keeps its state."""
    for j in range(LANES):
        s = State(
            account[0, j], account[1, j], account[2, j], account[3, j],
            account[4, j], account[5, j], account[6, j], account[7, j],
            account[8, j], account[9, j], account[10, j], account[11, j],
            account[12, j], account[13, j], account[14, j], account[15, j],
        )  # fmt: skip
        bar = tape[3, j], tape[4, j], tape[5, j], tape[6, j]
        nxt = tape[7, j], tape[8, j], tape[9, j], tape[10, j]
        action = actions[0, j], actions[1, j], actions[2, j], actions[3, j]
        new, earned, ruined = _step(p, s, action, flags[j], bar, nxt, t, tape[AUX, j])
        lives = alive[j] != 0
        account[0, j] = new.position if lives else s.position
        account[1, j] = new.cash if lives else s.cash
        account[2, j] = new.portfolio_val if lives else s.portfolio_val
        account[3, j] = new.dsr_A if lives else s.dsr_A
        account[4, j] = new.dsr_B if lives else s.dsr_B
        account[5, j] = new.pnl_ema if lives else s.pnl_ema
        account[6, j] = new.pnl_var if lives else s.pnl_var
        account[7, j] = new.peak_equity if lives else s.peak_equity
        account[8, j] = new.flat_counter if lives else s.flat_counter
        account[9, j] = new.prev_equity if lives else s.prev_equity
        account[10, j] = new.hold_time if lives else s.hold_time
        account[11, j] = new.realized_pnl if lives else s.realized_pnl
        account[12, j] = new.entry_price if lives else s.entry_price
        account[13, j] = new.trade_pnl if lives else s.trade_pnl
        account[14, j] = new.aux_at_entry if lives else s.aux_at_entry
        account[15, j] = new.dd_excess if lives else s.dd_excess
        reward[j] = earned if lives else ZERO
        alive[j] = 0 if ruined else alive[j]


@njit(error_model="numpy", fastmath=False)
def _block(p, bars, flags, aux, start, key, stage_round, rewards, final, first):
    """Walk `LANES` episodes, the first of them number `first`."""
    account, tape = np.zeros((N_STATE, LANES), np.float32), np.empty((N_TAPE, LANES), np.float32)
    words, flag = np.empty((4, LANES), np.uint32), np.empty(LANES, np.int32)
    actions, alive = np.empty((4, LANES), np.float32), np.ones(LANES, np.int32)
    reward = np.empty(LANES, np.float32)
    for k in CAPITAL:
        account[k] = p.initial_capital
    for t in range(len(rewards)):
        if t % 4 == 0:
            for j in range(LANES):
                words[0, j], words[1, j], words[2, j], words[3, j] = _philox4x32_10(
                    stage_round, np.uint32(first + j), np.uint32(t), np.uint32(0), key[0], key[1]
                )
        for j in range(LANES):
            b = start[first + j] + t
            for k in range(NEXT):
                tape[k, j] = bars[b, k]
            for k in range(NEXT, AUX):
                tape[k, j] = bars[b + 1, k - NEXT]
            tape[AUX, j] = aux[b]
            flag[j] = flags[b + 1]
            pick = np.int32((np.uint64(words[t % 4, j]) * np.uint64(108)) >> WORD)
            rest = pick >> TWO_BITS
            actions[0, j], actions[1, j] = pick & THREE, rest % THREE
            actions[2, j], actions[3, j] = rest // THREE % THREE, rest // np.int32(9)
        _advance(p, account, alive, actions, flag, tape, t, reward)
        rewards[t, first : first + LANES] = reward
    final[first : first + LANES] = account.T


@njit(parallel=True, error_model="numpy", fastmath=False)
def random_walk(p, bars, flags, aux, start, key, stage_round, rewards, final):
    """Walk episodes under random actions; twin of `random_sim_kernel`.

    Args:
        p: `Params`.
        bars: float32[n_bars, 8], `Bar` records.
        flags: uint32[n_bars], their last column.
        aux: float32[n_bars].
        start: int64[n], rows; n is a multiple of `LANES`.
        key: uint32[2].
        stage_round: uint32, counter word 0.
        rewards: float32[steps, n], written.
        final: float32[n, 16], `EpisodeState` records, written.
    """
    for block in prange(len(final) // LANES):
        _block(p, bars, flags, aux, start, key, stage_round, rewards, final, block * LANES)
