"""Small scenario networks with every parameter away from its initial value, and their inputs."""

import numpy as np
import torch

from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.weights import assemble
from backtest.config import Network

V_MAX = 2.5
SIZES = [{}, {"top_k": 2}, {"stack_size": 3}, {"stack_size": 2, "top_k": 1}]


def section(**changes) -> Network:
    values = {
        "kind": "scenario",
        "hidden": (24, 16),
        "atoms": 21,
        "scenarios": 3,
        "horizon": 4,
        "latent": 6,
        "forecaster_hidden": 10,
    }
    return Network(**(values | changes))


def network(sizes: Network | None = None, seed=0) -> ScenarioNetwork:
    result = ScenarioNetwork(sizes or section(), V_MAX, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    result.forecaster.initialise(rng)
    with torch.no_grad():
        for parameter in result.parameters():
            parameter += torch.from_numpy(rng.normal(0, 0.2, parameter.shape).astype(np.float32))
    return result


def rows(count=48, seed=1, stack=1):
    """bar_part [count, stack, 115] and portfolio [count, stack, 13]."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 1, (count, stack, 115)).astype(np.float32),
        rng.normal(0, 1, (count, stack, 13)).astype(np.float32),
    )


def states(net: ScenarioNetwork, bar_part, portfolio) -> torch.Tensor:
    """Inputs of `net`: [count, width], or [count, stack, width]."""
    count, stack, _ = bar_part.shape
    slots = torch.from_numpy(assemble(bar_part.reshape(-1, 115), portfolio.reshape(-1, 13)))
    whole = torch.cat([slots, net.forecaster.context(slots)], dim=1)
    return whole if stack == 1 else whole.view(count, stack, -1)
