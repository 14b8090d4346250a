"""The networks in torch: the `mlp` kind, and the one place that builds either kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from backtest.agent.dueling import (
    ALL_BRANCHES,
    DuelingNetwork,
    dueling,
    expected,
    greedy,
    local_spans,
)
from backtest.agent.linear import linear
from backtest.agent.weights import Floats, PolicyWeights, export
from backtest.config import Network
from backtest.market.layout import STATE_DIM

__all__ = [
    "ALL_BRANCHES",
    "QNetwork",
    "build",
    "dueling",
    "expected",
    "flatten",
    "greedy",
    "local_spans",
]


class QNetwork(DuelingNetwork):
    """The `mlp` kind: 128 -> h1 -> h2, ReLU, then the heads.

    Input is the state [B, 128] (`backtest.agent.weights.assemble` builds it from its two parts).
    """

    def __init__(
        self,
        hidden: tuple[int, int],
        atoms: int,
        v_max: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Build the network; with `rng` the weights are He normal and the biases zero."""
        super().__init__()
        h1, h2 = hidden
        self.first = nn.Linear(STATE_DIM, h1)
        self.hidden = nn.Linear(h1, h2)
        self.end_in_heads(h2, atoms, v_max)
        if rng is not None:
            self.initialise(rng)

    def features(self, state: Tensor) -> Tensor:
        """Return the second hidden layer [B, h2]."""
        first, second = self.first, self.hidden
        hidden = torch.relu(linear(state, first.weight, first.bias))
        return torch.relu(linear(hidden, second.weight, second.bias))

    def make_critic(self) -> QNetwork:
        """Return a network of the same sizes, to be loaded."""
        return QNetwork((self.first.out_features, self.hidden.out_features), self.atoms)

    def weights(self, v_max: float) -> PolicyWeights:
        """Return the kernel's view of the current parameters."""
        return export(self.numpy_state(), v_max)


def build(
    network: Network,
    rng: np.random.Generator | None = None,
    forecaster: Mapping[str, Floats] | None = None,
) -> DuelingNetwork:
    """Return a network of the section's kind.

    Args:
        network: kind and sizes.
        rng: draws the weights; None leaves them to be loaded.
        forecaster: parameters of the frozen forecaster by name, for the scenario kind.
    """
    if network.kind == "mlp":
        return QNetwork(network.hidden, network.atoms, rng=rng)
    from backtest.agent.scenario.network import ScenarioNetwork

    result = ScenarioNetwork(network, rng=rng)
    if forecaster is not None:
        result.forecaster.load_numpy(forecaster)
    return result


def flatten(network: DuelingNetwork) -> nn.Parameter:
    """Move the trained parameters and their gradients into one vector each; return it.

    The network's parameters become views, so clipping, Adam and target copies are single passes.
    """
    parameters = list(network.trained().values())
    vector = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    vector.grad = torch.zeros_like(vector)
    start = 0
    for parameter in parameters:
        place = slice(start, start + parameter.numel())
        parameter.data = vector.data[place].view_as(parameter)
        parameter.grad = vector.grad[place].view_as(parameter)
        start = place.stop
    return vector
