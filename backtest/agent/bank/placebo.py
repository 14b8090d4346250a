"""Banks of random directions: what skills must beat before anybody calls them skills."""

from __future__ import annotations

import numpy as np

from backtest.agent.bank.bank import Bank
from backtest.agent.bank.ordered import norm


def placebo(bank: Bank, rng: np.random.Generator) -> Bank:
    """Return a copy of a bank whose used slots have random directions of the same strength.

    Keys, scales, states, utilities and norms of corrections stay as they are.

    Args:
        bank: read, never changed.
        rng: draws normal vectors, one per used slot.
    """
    result = Bank(bank.slots, bank.dim, key_dim=bank.key_dim, **bank.parameters)
    result.load_state_dict(bank.state_dict())
    state = result.state
    for slot in np.flatnonzero(state.used):
        draw = rng.standard_normal(bank.dim).astype(np.float32)
        size = norm(state.corrections[slot])
        state.directions[slot] = draw / norm(draw)
        state.corrections[slot] = size * state.directions[slot]
    return result
