"""Scripted policies of known skill, as target positions.

A foresight looks one bar ahead on purpose: it knows whether the fill of its own decision will earn
or lose until close[b+1]. The others are made from it, so all are judged on the same bars.
"""

from __future__ import annotations

import numpy as np

from backtest import rng
from backtest.market.layout import Array, BarFlag, Fill
from backtest.market.tape import Tape

# Value in `reward_audit.policy` and the words of summaries.
POLICIES = {
    "foresight": "foresight",
    "foresight_shrunk": "foresight shrunk on large moves",
    "foresight_third": "foresight at 1/3 size",
    "accurate_60": "60 %",
    "accurate_55": "55 %",
    "buy_and_hold": "buy and hold",
    "flat": "flat",
    "random": "random",
    "inverse": "inverse",
}
THIRD = np.float32(1 / 3)
LARGE = np.float32(1.5)  # sigmas; the shrunk foresight holds a third of its size beyond it
DRAW_ERROR, DRAW_RANDOM = 0, 1  # draw numbers within a step of stage AUDIT


def fill_moves(tape: Tape) -> Array:
    """Return close[b+1] - fill price of a market order decided at bar b, points, float32[n-1].

    With fills at the close of a bar before a contract roll the fill price is the shifted close,
    which is open[b+1].
    """
    bar, nxt = tape.bars[:-1], tape.bars[1:]
    price = nxt["open"]
    if tape.params["fill"] == Fill.CLOSE:
        price = np.where((nxt["flags"] & BarFlag.ROLL) != 0, price, bar["close"])
    moves: Array = nxt["close"] - price
    return moves


def target_paths(tape: Tape, start: Array, steps: int, key: Array, episode: Array) -> Array:
    """Return the target positions of every policy, float32[steps, len(POLICIES), n], units.

    An accuracy of 55 % is the foresight with its sign turned where u < 0.45; 60 % uses the same u.
    Random trades as often as the 55 % policy of the same episode and knows nothing: a fair coin
    chooses its first side, and it turns with the rate at which that policy's position changed.

    Args:
        tape: bars and parameters.
        start: int[n], decision bar of each episode's step 0.
        steps: length of the episodes.
        key: uint32[2] of `rng.key`.
        episode: int[n], ids of the episodes in the streams of stage AUDIT.
    """
    row = np.asarray(start) - tape.start + np.arange(steps)[:, None]
    move = fill_moves(tape)[row]
    foresight = np.sign(move)
    large = np.abs(move) > LARGE * tape.bars["sigma"][row]
    error = _uniform(key, episode, steps, DRAW_ERROR)
    accurate = np.where(error < np.float32(0.45), -foresight, foresight)
    paths = {
        "foresight": foresight,
        "foresight_shrunk": np.where(large, foresight * THIRD, foresight),
        "foresight_third": foresight * THIRD,
        "accurate_60": np.where(error < np.float32(0.40), -foresight, foresight),
        "accurate_55": accurate,
        "buy_and_hold": np.ones_like(foresight),
        "flat": np.zeros_like(foresight),
        "random": random_path(accurate, _uniform(key, episode, steps, DRAW_RANDOM)),
        "inverse": -foresight,
    }
    sides: Array = np.stack([paths[name] for name in POLICIES], axis=1).astype(np.float32)
    sides *= tape.params["max_position"]
    return sides


def random_path(model: Array, u: Array) -> Array:
    """Return sides of +-1 that turn as often as the model's position does, float32[steps, n].

    Args:
        model: float32[steps, n], positions in [-1, 1].
        u: float32[steps, n] in [0, 1).
    """
    # a turn trades two units, so half the mean change is the rate of turns
    rate = np.zeros(model.shape[1])
    if len(model) > 1:
        rate = np.abs(np.diff(model, axis=0)).mean(axis=0, dtype=np.float64) / 2
    turns = u < rate
    turns[0] = u[0] < np.float32(0.5)
    sides: Array = np.where(np.cumsum(turns, axis=0) % 2 == 0, np.float32(1), np.float32(-1))
    return sides


def _uniform(key: Array, episode: Array, steps: int, draw: int) -> Array:
    t = np.arange(steps)[:, None]
    return rng.uniform(key, rng.Stage.AUDIT, 0, np.asarray(episode)[None, :], t, draw)
