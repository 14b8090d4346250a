"""Sizes and shapes of the scenario network by name; what its parts read of the state.

S scenarios, H bars ahead, L latent width; one variable (V = 1) leaves no axis of its own.
Flat orders: task context [3][S][L] (balance, position, calendar), step context [S][H][L].
Needs no torch.
"""

from __future__ import annotations

import numpy as np

from backtest.agent.weights import Floats
from backtest.config import Network
from backtest.market.layout import BAR_SLOTS, N_ACTIONS, PORTFOLIO_SLOTS

FORECASTER_INPUTS = 112  # slots 0-111: features on both time scales, and 28 differences
# The three query groups, by state slot. The forecast of slot 121 is in none: it has its bypass.
GROUPS = {
    "balance": (116, 117, 119, 120, 122, 123),
    "position": (112, 113, 114, 115, 118, 124, 125),
    "calendar": (36, 37, 38, 39, 126, 127),
}
# The same as columns of the 13 portfolio floats, and of the 115 floats of a bar.
BALANCE = tuple(PORTFOLIO_SLOTS.index(slot) for slot in GROUPS["balance"])
POSITION = tuple(PORTFOLIO_SLOTS.index(slot) for slot in GROUPS["position"])
CALENDAR = tuple(BAR_SLOTS.index(slot) for slot in GROUPS["calendar"])


def task_dim(network: Network) -> int:
    """Return 3*S*L, the width of the task context."""
    return 3 * network.scenarios * network.latent


def step_dim(network: Network) -> int:
    """Return S*H*L, the width of the step context."""
    return network.scenarios * network.horizon * network.latent


def context_width(network: Network) -> int:
    """Return the bar-only columns behind the 128 slots; 0 for the mlp.

    In order: latents S*H*L, log-uncertainty S*H, scenario weights S.
    """
    if network.kind == "mlp":
        return 0
    return step_dim(network) + network.scenarios * (network.horizon + 1)


def positions(horizon: int, latent: int) -> Floats:
    """Return the sinusoidal encoding float32[H, L] of Vaswani 2017: sine in even places."""
    rate = 10000.0 ** (-np.arange(0, latent, 2) / latent)
    angle = np.arange(horizon)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(horizon, -1).astype(np.float32)


def forecaster_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of the forecaster by name."""
    s, h, width = network.scenarios, network.latent, network.forecaster_hidden
    return {
        "first.weight": (width, FORECASTER_INPUTS),
        "first.bias": (width,),
        "second.weight": (width, width),
        "second.bias": (width,),
        "latent.weight": (step_dim(network), width),
        "latent.bias": (step_dim(network),),
        "mu.weight": (1, h),
        "mu.bias": (1,),
        "log_u.weight": (1, h),
        "log_u.bias": (1,),
        "scenario.weight": (s, width),
        "scenario.bias": (s,),
    }


def scenario_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a `scenario` network by name."""
    latent, unfolded = network.latent, network.scenarios * network.latent
    h1, h2 = network.hidden
    shapes = {f"forecaster.{name}": form for name, form in forecaster_shapes(network).items()}
    for name, slots in GROUPS.items():
        shapes[f"query.{name}.weight"] = (unfolded, len(slots))
        shapes[f"query.{name}.bias"] = (unfolded,)
    return shapes | {
        "latent.weight": (latent, latent),
        "latent.bias": (latent,),
        "uncertainty.weight": (latent, 1),
        "uncertainty.bias": (latent,),
        "norm.weight": (latent,),
        "norm.bias": (latent,),
        "first.weight": (h1, network.stack_size * 3 * unfolded),
        "first.bias": (h1,),
        "hidden.weight": (h2, h1),
        "hidden.bias": (h2,),
        "value.weight": (network.atoms, h2),
        "value.bias": (network.atoms,),
        "advantage.weight": (N_ACTIONS * network.atoms, h2),
        "advantage.bias": (N_ACTIONS * network.atoms,),
        "alpha.weight": (4,),
    }
