"""Policies of random weights: what kernels are compared and timed on."""

from __future__ import annotations

import numpy as np

from backtest.agent.weights import PolicyWeights, export, parameter_shapes


def random_policy(
    hidden: tuple[int, int], atoms: int, seed: int = 0, v_max: float = 5.0
) -> PolicyWeights:
    """Return a policy of He-scaled random weights."""
    draw = np.random.default_rng(seed)
    state = {
        name: draw.normal(0, (2 / form[-1]) ** 0.5, form).astype(np.float32)
        for name, form in parameter_shapes(hidden, atoms).items()
    }
    return export(state, v_max)
