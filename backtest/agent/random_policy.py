"""Policies of random weights: what kernels are compared and timed on."""

from __future__ import annotations

import numpy as np

from backtest.agent.scenario_layout import scenario_shapes
from backtest.agent.scenario_weights import ScenarioWeights, export_scenario
from backtest.agent.weights import Floats, PolicyWeights, export, parameter_shapes
from backtest.config import Network


def random_policy(
    hidden: tuple[int, int], atoms: int, seed: int = 0, v_max: float = 5.0, alpha: float = 0.0
) -> PolicyWeights:
    """Return an mlp policy of He-scaled random weights; alpha is the spread of its bypass."""
    return export(_draw(parameter_shapes(hidden, atoms), seed, alpha), v_max)


def random_scenario(
    network: Network, seed: int = 0, v_max: float = 5.0, alpha: float = 0.0
) -> ScenarioWeights:
    """Return a scenario policy of He-scaled random weights; alpha is the spread of its bypass."""
    return export_scenario(_draw(scenario_shapes(network), seed, alpha), network, v_max)


def _draw(shapes: dict[str, tuple[int, ...]], seed: int, alpha: float) -> dict[str, Floats]:
    draw = np.random.default_rng(seed)
    spread = {name: (2 / form[-1]) ** 0.5 for name, form in shapes.items()}
    spread["alpha.weight"] = alpha
    return {
        name: draw.normal(0, spread[name], form).astype(np.float32) for name, form in shapes.items()
    }
