"""Observations that reach every branch of a bank: what definition and kernels are compared on."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.agent.bank.bank import Bank
from backtest.agent.bank.state import Floats

CLUSTERS = 4  # contexts; each has one direction, some observations have its opposite
NOISE = 0.3


def rough_rows(rows: int, key_dim: int, dim: int, seed: int) -> tuple[Floats, Floats]:
    """Return contexts float32[rows, K] and pseudo-residuals float32[rows, D].

    A few of every thing that a bank refuses: not finite, zero, far too small, a zero context.
    """
    rng = np.random.default_rng(seed)
    contexts = rng.normal(0, 1, (CLUSTERS, key_dim))
    directions = rng.normal(0, 1, (CLUSTERS, dim))
    cluster = rng.integers(0, CLUSTERS, rows)
    sign = np.where(rng.random(rows) < 0.15, -1, 1)[:, None]
    h = contexts[cluster] * np.exp(rng.normal(0, 0.3, rows))[:, None]
    h += rng.normal(0, NOISE, h.shape)
    g = directions[cluster] * sign + rng.normal(0, NOISE, (rows, dim))
    g *= np.exp(rng.normal(-1, 1, rows))[:, None]

    def few() -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] = rng.random(rows) < 0.02
        return chosen

    g[few()] = 0
    g[few()] *= 1e-6
    h[few()] = 0
    h[few(), 0] = np.nan
    g[few(), -1] = np.inf
    return h.astype(np.float32), g.astype(np.float32)


def rough_parameters(seed: int) -> dict[str, Any]:
    """Return one drawn combination of a bank's parameters, hurried enough for short streams."""
    rng = np.random.default_rng(seed)

    def one(*values: Any) -> Any:
        return values[rng.integers(0, len(values))]

    return {
        "representation": one("direction_magnitude", "full"),
        "similarity_threshold": one(0.3, 0.7, 0.9),
        "direction_threshold": one(0.0, 0.5, 0.8),
        "alpha_unit": one("relative", "raw"),
        "aggregate": one(1, 1, 2, 5),
        "aggregate_cells": one(1, 3, 64),
        "beta_key": one(0.1, 0.5, 1.0),
        "beta_direction": one(0.1, 0.5, 1.0),
        "beta_magnitude": one(0.1, 0.5, 1.0),
        "beta_correction": one(0.1, 0.5, 1.0),
        "beta_utility": one(0.1, 0.5),
        "max_correction": one(0.1, 1.0, 100.0),
        "min_confirmations": one(1, 2, 3),
        "protection_age": one(0, 1, 5),
        "inactivity_age": one(1, 5, 20),
        "candidate_pool": one(1, 2, 4),
        "candidate_ttl": one(1, 5, 50),
        "utility_rule": one("solo", "participation", "original"),
        "influence_rule": one("trapezoid", "endpoint"),
        "min_utility": one(-1.0, -0.2, 0.1),
    }


def rough_bank(
    slots: int, dim: int, seed: int, *, key_dim: int | None = None, rows: int = 200, **changes: Any
) -> Bank:
    """Return a bank that has learned `rows` rough observations and been closed.

    Args:
        slots: N.
        dim: D.
        seed: of parameters, observations, uses and utilities.
        key_dim: K; None: D.
        rows: observations.
        **changes: parameters that are not drawn.
    """
    bank = Bank(slots, dim, key_dim=key_dim, **(rough_parameters(seed) | changes))
    h, g = rough_rows(rows, bank.key_dim, dim, seed)
    rng = np.random.default_rng(seed)
    bank.update_rows(h, g)
    bank.close_collection()
    bank.state.utility[:] = rng.uniform(-0.5, 1, slots) * bank.state.used
    bank.state.uses[:] = rng.integers(0, 1000, slots) * bank.state.used
    return bank
