"""The `mlp` network in torch: 128 -> h1 -> h2, ReLU, dueling branching C51 heads.

The dueling combination is folded into the head's weights, as `backtest.agent.weights` does for the
kernels: the same function and gradient at a cost that does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from backtest.agent.actions import SPANS
from backtest.agent.weights import Floats, PolicyWeights, export, support
from backtest.market.layout import N_ACTIONS, N_BRANCHES, STATE_DIM

ALL_BRANCHES = tuple(range(N_BRANCHES))
# He's variance is meant for layers before a ReLU. In the heads it makes untrained values as large
# as the whole range, which then have to be unlearned (AR(1) 0.3, 84 noise features: PnL 0.06
# a bar with He's, 0.13 with a tenth of it).
HEAD_SCALE = 0.1


class QNetwork(nn.Module):
    """Return distributions of all actions, float32.

    Input is the state [B, 128] (`backtest.agent.weights.assemble` builds it from its two parts).
    `branches` are branch indices in order; results hold their actions only.
    """

    support: Tensor  # [atoms], reward units

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
        self.atoms = atoms
        self.first = nn.Linear(STATE_DIM, h1)
        self.hidden = nn.Linear(h1, h2)
        self.value = nn.Linear(h2, atoms)
        self.advantage = nn.Linear(h2, N_ACTIONS * atoms)
        self.register_buffer("support", torch.empty(atoms), persistent=False)
        self.set_range(v_max)
        if rng is not None:
            self._initialise(rng)

    def set_range(self, v_max: float) -> None:
        """Place the atoms on [-v_max, v_max]."""
        self.support.copy_(torch.from_numpy(support(v_max, self.atoms)))

    @torch.no_grad()
    def _initialise(self, rng: np.random.Generator) -> None:
        """He 2015: normal with variance 2/inputs; drawn on the host, equal on every device."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
                continue
            scale = np.sqrt(2.0 / parameter.shape[1])
            if name.startswith(("value", "advantage")):
                scale *= HEAD_SCALE
            draw = rng.standard_normal(tuple(parameter.shape)) * scale
            parameter.copy_(torch.from_numpy(draw.astype(np.float32)))

    def head(self, branches: Sequence[int] = ALL_BRANCHES) -> tuple[Tensor, Tensor]:
        """Return weight [A*atoms, h2] and bias [A*atoms] with V + A - mean(A) folded in."""
        combine = dueling(tuple(branches), self.value.weight.device)
        rows = columns(branches)
        weight = self.advantage.weight.view(N_ACTIONS, -1)[rows]
        bias = self.advantage.bias.view(N_ACTIONS, -1)[rows]
        weight = combine @ torch.cat([self.value.weight.view(1, -1), weight])
        bias = combine @ torch.cat([self.value.bias.view(1, -1), bias])
        return weight.view(-1, self.value.in_features), bias.view(-1)

    def logits(self, state: Tensor, head: tuple[Tensor, Tensor]) -> Tensor:
        """Return [B, A, atoms] for the actions of a `head`, which several calls may share."""
        hidden = torch.relu(self.hidden(torch.relu(self.first(state))))
        return nn.functional.linear(hidden, *head).view(len(state), -1, self.atoms)

    def q_values(self, state: Tensor, branches: Sequence[int] = ALL_BRANCHES) -> Tensor:
        """Return expected returns [B, A], reward units."""
        return expected(self.logits(state, self.head(branches)), self.support)

    def numpy_state(self) -> dict[str, Floats]:
        """Return copies of all parameters by name, on the host."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.state_dict().items()}

    def load_numpy(self, state: Mapping[str, Floats]) -> None:
        """Set all parameters from `numpy_state`'s mapping."""
        self.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})

    def weights(self, v_max: float) -> PolicyWeights:
        """Return the kernel's view of the current parameters."""
        return export(self.numpy_state(), v_max)


def flatten(network: nn.Module) -> nn.Parameter:
    """Move all parameters and their gradients into one vector each; return it.

    The network's parameters become views, so clipping, Adam and target copies are single passes.
    """
    parameters = list(network.parameters())
    vector = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    vector.grad = torch.zeros_like(vector)
    start = 0
    for parameter in parameters:
        place = slice(start, start + parameter.numel())
        parameter.data = vector.data[place].view_as(parameter)
        parameter.grad = vector.grad[place].view_as(parameter)
        start = place.stop
    return vector


def expected(logits: Tensor, atoms: Tensor) -> Tensor:
    """Return the mean [...] of the distributions softmax(logits [..., atoms]) on `atoms`."""
    return logits.softmax(-1) @ atoms


def columns(branches: Sequence[int]) -> slice | list[int]:
    """Return where the actions of these branches lie among the 13; a slice when contiguous."""
    places = [i for b in branches for i in range(*SPANS[b])]
    if places == list(range(places[0], places[-1] + 1)):
        return slice(places[0], places[-1] + 1)
    return places


def local_spans(branches: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return [start, stop) of each branch among the actions of these branches only."""
    sizes = [SPANS[b][1] - SPANS[b][0] for b in branches]
    edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return tuple(pairwise(edges))


@cache
@torch.inference_mode(False)  # kept tensors serve training even when scoring asked first
def dueling(branches: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the combination [A, 1 + A] that maps (V, advantages) to V + A - mean_branch(A)."""
    spans = local_spans(branches)
    matrix = torch.eye(spans[-1][1])
    for start, stop in spans:
        matrix[start:stop, start:stop] -= 1.0 / (stop - start)
    return torch.cat([torch.ones(len(matrix), 1), matrix], dim=1).to(device)


def greedy(q: Tensor, branches: Sequence[int] = ALL_BRANCHES) -> Tensor:
    """Return the best action of each branch, int64[B, L]; torch's argmax takes the first of equals.

    Args:
        q: [B, A], values of the actions of these branches.
        branches: the branches q holds.
    """
    return torch.stack([q[:, a:b].argmax(1) for a, b in local_spans(branches)], dim=1)
