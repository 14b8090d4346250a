"""What differs between the kinds of network, for code that needs no torch."""

from __future__ import annotations

from typing import Literal

from backtest.agent import scenario_weights, weights
from backtest.agent.scenario_layout import scenario_shapes
from backtest.agent.scenario_weights import ScenarioWeights, export_scenario
from backtest.agent.weights import Floats, PolicyWeights, State, export, parameter_shapes
from backtest.config import Network

Weights = PolicyWeights | ScenarioWeights
# off: the bypass's weights stay 0; detached: they learn; both: their loss also differentiates the
# forecast
BypassMode = Literal["off", "detached", "both"]


def shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a network by name."""
    if network.kind == "scenario":
        return scenario_shapes(network)
    return parameter_shapes(network.hidden, network.atoms)


def export_weights(state: State, network: Network, v_max: float) -> Weights:
    """Return the kernel's view of a network's parameters.

    Args:
        state: its parameters by name.
        network: kind and sizes.
        v_max: upper end of the symmetric support, reward units.
    """
    if network.kind == "scenario":
        return export_scenario(state, network, v_max)
    return export(state, v_max)


def forward(policy: Weights, bar_part: Floats, portfolio: Floats) -> Floats:
    """Return the 13 action values of each row, float32[B, 13], by the policy's NumPy oracle.

    Args:
        policy: of either kind, without skills; a stack sees nothing before the row.
        bar_part: float32[B, 115].
        portfolio: float32[B, 13].
    """
    if isinstance(policy, ScenarioWeights):
        return scenario_weights.forward(policy, bar_part, portfolio)
    return weights.forward(policy, bar_part, portfolio)
