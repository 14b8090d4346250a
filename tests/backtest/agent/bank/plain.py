"""Banks whose numbers a person can follow: no centring, no cells, averages of one half."""

import numpy as np

from backtest.agent.bank import Bank, SlotState

HALVES = {
    "similarity_threshold": 0.7,
    "centering": "none",
    "aggregate": 1,
    "beta_key": 0.5,
    "beta_direction": 0.5,
    "beta_magnitude": 0.5,
    "beta_correction": 0.5,
    "beta_utility": 0.5,
    "alpha_unit": "raw",
}


def vector(*values):
    return np.array(values, np.float32)


def plain(slots=3, dim=4, **parameters):
    return Bank(slots, dim, **{**HALVES, **parameters})


def put(bank, slot, key, direction, scale=0.5, state=SlotState.ACTIVE, **more):
    """Write a live skill into a slot by hand."""
    s = bank.state
    s.keys[slot], s.directions[slot], s.scale[slot] = key, direction, scale
    s.corrections[slot] = np.float32(scale) * s.directions[slot]
    s.used[slot], s.state[slot], s.observations[slot] = 1, state, 5
    for name, value in more.items():
        getattr(s, name)[slot] = value
    return bank


def same(found, want):
    assert np.allclose(found, want, rtol=1e-6, atol=1e-7), (found, want)


def candidate(bank, place, key, way, streak=1, scale=0.5):
    s = bank.state
    s.pool_keys[place], s.pool_directions[place], s.pool_scale[place] = key, way, scale
    s.pool_corrections[place] = np.float32(scale) * s.pool_directions[place]
    s.pool_used[place], s.pool_streak[place] = 1, streak
    return bank


def stream(rng, rows, dim, centres=3, noise=0.3):
    """Contexts around a few centres, each with its own direction."""
    keys = rng.standard_normal((centres, dim))
    ways = rng.standard_normal((centres, dim))
    which = rng.integers(0, centres, rows)
    h = keys[which] + noise * rng.standard_normal((rows, dim))
    g = 0.1 * (ways[which] + noise * rng.standard_normal((rows, dim)))
    return h.astype(np.float32), g.astype(np.float32)
