"""Cells that sum observations of one context and emit their mean: single residuals are noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backtest.agent.bank.codes import CELL_RATE
from backtest.agent.bank.ordered import cosines
from backtest.agent.bank.rules import Rules
from backtest.agent.bank.state import BankState, Floats
from backtest.agent.bank.update import best

RATE = np.float32(CELL_RATE)
KEEP = np.float32(1) - RATE


class Emitted(NamedTuple):
    """What a full cell hands to the bank."""

    x: Floats  # [K], centred key of the cell
    g: Floats  # [D], mean pseudo-residual


def gather(state: BankState, rules: Rules, x: Floats, g: Floats, xx: Floats) -> Emitted | None:
    """Add a finite observation to its cell; return what the cell emits when it is full.

    The cell with the highest key cosine at or above the threshold (ties: the lowest) moves its key
    by 0.05 and adds g; otherwise a new cell opens in the lowest free place, else in place of the
    least recently used one (ties: the lowest), whose sum is lost. A cell that has summed
    `aggregate` observations emits (key, sum/count) and goes on with its key and nothing summed.

    Args:
        state: changed in place.
        rules: of the bank; aggregate > 1.
        x: float32[K], centred context.
        g: float32[D].
        xx: the square of x.
    """
    used = state.cell_used != 0
    near = cosines(state.cell_keys, x, xx)
    cell = best(near, used & (near >= state.threshold))
    state.cell_clock += 1
    if cell >= 0:
        state.cell_keys[cell] = KEEP * state.cell_keys[cell] + RATE * x
        state.cell_sum[cell] += g
        state.cell_count[cell] += 1
    else:
        if used.all():
            cell = int(np.argmin(state.cell_last))
            state.count("recycled")
        else:
            cell = int(np.argmin(used))
        state.cell_keys[cell], state.cell_sum[cell] = x, g
        state.cell_used[cell], state.cell_count[cell] = 1, 1
    state.cell_last[cell] = state.cell_clock
    if state.cell_count[cell] < rules.aggregate:
        state.count("swallowed")
        return None
    mean = state.cell_sum[cell] / np.float32(state.cell_count[cell])
    state.cell_sum[cell], state.cell_count[cell] = 0, 0
    return Emitted(state.cell_keys[cell].copy(), mean)
