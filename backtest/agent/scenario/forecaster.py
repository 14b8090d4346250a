"""The forecaster: a mixture of S scenarios, each a path of H differences with its uncertainty.

It reads state slots 0-111, is trained once (`training`), and is frozen afterwards: the actor and
its target network read the same latents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from backtest.agent.scenario_layout import FORECASTER_INPUTS, step_dim
from backtest.agent.scenario_weights import NORM_EPS
from backtest.agent.weights import Floats
from backtest.config import Network

# Untrained means near 0 and deviations near 1 sigma: the mixture starts as white noise.
READ_SCALE = 0.1


class Forecast(NamedTuple):
    """Scenarios of B bars."""

    latent: Tensor  # [B, S, H, L]
    mu: Tensor  # [B, S, H], mean difference, sigmas
    log_u: Tensor  # [B, S, H], log of its standard deviation
    log_weight: Tensor  # [B, S], log of the scenario's probability


class Forecaster(nn.Module):
    """112 -> F -> F, LayerNorm, ReLU; then latents and scenario weights.

    Mean and log U read the latents.
    """

    def __init__(self, network: Network) -> None:
        """Build it; `initialise` draws the weights."""
        super().__init__()
        width = network.forecaster_hidden
        self.sizes = (network.scenarios, network.horizon, network.latent)
        self.first = nn.Linear(FORECASTER_INPUTS, width)
        self.second = nn.Linear(width, width)
        self.latent = nn.Linear(width, step_dim(network))
        self.mu = nn.Linear(network.latent, 1)
        self.log_u = nn.Linear(network.latent, 1)
        self.scenario = nn.Linear(width, network.scenarios)

    @torch.no_grad()
    def initialise(self, rng: np.random.Generator) -> None:
        """He 2015 before a ReLU, variance 1/inputs elsewhere, the read-outs a tenth of it."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
                continue
            gain = 2.0 if name.startswith(("first", "second")) else 1.0
            scale = np.sqrt(gain / parameter.shape[1])
            if name.startswith(("mu", "log_u", "scenario")):
                scale *= READ_SCALE
            draw = rng.standard_normal(tuple(parameter.shape)) * scale
            parameter.copy_(torch.from_numpy(draw.astype(np.float32)))

    def forward(self, slots: Tensor) -> Forecast:
        """Return the scenarios of states [B, >= 112]; only slots 0-111 are read."""
        hidden = torch.relu(self._free(self.first(slots[:, :FORECASTER_INPUTS])))
        hidden = torch.relu(self._free(self.second(hidden)))
        latent = self.latent(hidden).view(-1, *self.sizes)
        return Forecast(
            latent,
            self.mu(latent)[..., 0],
            self.log_u(latent)[..., 0],
            self.scenario(hidden).log_softmax(-1),
        )

    def _free(self, hidden: Tensor) -> Tensor:
        """Return hidden layers [B, F] freed of their size (LayerNorm, Ba 2016).

        Bars unlike all training bars excite a ReLU network by their size alone: without it one
        axis held 60 % of the latents' variance on AR(1) regimes, and cosines told nothing apart.
        """
        return functional.layer_norm(hidden, hidden.shape[-1:], eps=float(NORM_EPS))

    @torch.no_grad()
    def context(self, slots: Tensor) -> Tensor:
        """Return the columns [B, C] that stand behind the 128 slots of a state.

        In order: latents S*H*L, log-uncertainty S*H, scenario weights S.
        """
        latent, _, log_u, log_weight = self(slots)
        return torch.cat([latent.flatten(1), log_u.flatten(1), log_weight.exp()], dim=1)

    def numpy_state(self) -> dict[str, Floats]:
        """Return copies of all parameters by name, on the host."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.state_dict().items()}

    def load_numpy(self, state: Mapping[str, Floats]) -> None:
        """Set all parameters from `numpy_state`'s mapping."""
        self.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
