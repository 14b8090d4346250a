"""What both kinds of network end in: dueling branching C51 heads and the bypass of the forecast.

The dueling combination is folded into the head's weights, as `backtest.agent.weights` does for the
kernels: the same function and gradient at a cost that does not grow with the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from backtest.agent.actions import SPANS
from backtest.agent.kinds import Weights
from backtest.agent.linear import linear
from backtest.agent.weights import N_DIRECTIONS, Floats, support
from backtest.market.layout import AUX_SLOT, N_ACTIONS, N_BRANCHES

ALL_BRANCHES = tuple(range(N_BRANCHES))
DIRECTION = 0  # the branch that the bypass reaches
# He's variance is meant for layers before a ReLU. In the heads it makes untrained values as large
# as the whole range, which then have to be unlearned (AR(1) 0.3, 84 noise features: PnL 0.06
# a bar with He's, 0.13 with a tenth of it).
HEAD_SCALE = 0.1


class Bypass(nn.Module):
    """Weights of the forecast in the values of direction; zero until they learn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(N_DIRECTIONS))

    def forward(self, state: Tensor) -> Tensor:
        """Return [B, 4], what is added to the direction values of states [B, ...]."""
        return forecast(state)[:, None] * (self.weight - self.weight.mean())


class DuelingNetwork(nn.Module, ABC):
    """Return distributions of all actions from the features of a subclass, float32.

    `branches` are branch indices in order; results hold their actions only.
    """

    support: Tensor  # [atoms], reward units
    value: nn.Linear
    advantage: nn.Linear
    alpha: Bypass

    def end_in_heads(self, inputs: int, atoms: int, v_max: float) -> None:
        """Add the heads; a subclass calls it last, so that they draw their weights last."""
        self.atoms = atoms
        self.value = nn.Linear(inputs, atoms)
        self.advantage = nn.Linear(inputs, N_ACTIONS * atoms)
        self.alpha = Bypass()
        self.register_buffer("support", torch.empty(atoms), persistent=False)
        self.set_range(v_max)

    def set_range(self, v_max: float) -> None:
        """Place the atoms on [-v_max, v_max]."""
        self.support.copy_(torch.from_numpy(support(v_max, self.atoms)))

    def trained(self) -> dict[str, nn.Parameter]:
        """Return what the C51 loss trains by name: not the bypass, which has a loss of its own."""
        return {n: p for n, p in self.named_parameters() if not n.startswith("alpha.")}

    @torch.no_grad()
    def initialise(self, rng: np.random.Generator) -> None:
        """He 2015: normal with variance 2/inputs; drawn on the host, equal on every device.

        Biases start at 0, the scale of a norm at 1.
        """
        for name, parameter in self.trained().items():
            if parameter.ndim == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            scale = np.sqrt(2.0 / parameter.shape[1])
            if name.startswith(("value", "advantage")):
                scale *= HEAD_SCALE
            draw = rng.standard_normal(tuple(parameter.shape)) * scale
            parameter.copy_(torch.from_numpy(draw.astype(np.float32)))

    def head(self, branches: Sequence[int] = ALL_BRANCHES) -> tuple[Tensor, Tensor]:
        """Return weight [A*atoms, h2] and bias [A*atoms] with V + A - mean(A) folded in."""
        device = self.value.weight.device
        combine, rows = dueling(tuple(branches), device), columns(tuple(branches), device)
        weight = self.advantage.weight.view(N_ACTIONS, -1)[rows]
        bias = self.advantage.bias.view(N_ACTIONS, -1)[rows]
        weight = combine @ torch.cat([self.value.weight.view(1, -1), weight])
        bias = combine @ torch.cat([self.value.bias.view(1, -1), bias])
        return weight.view(-1, self.value.in_features), bias.view(-1)

    def arranged(self, state: Tensor) -> Tensor:
        """Return the same states in the layout that is read fastest, for several calls."""
        return state

    @abstractmethod
    def features(self, state: Tensor) -> Tensor:
        """Return the last hidden layer [B, h2]."""

    @property
    def context(self) -> Callable[[Tensor], Tensor] | None:
        """What gives the columns of a state behind its 128 slots; None for none."""
        return None

    @abstractmethod
    def make_critic(self) -> DuelingNetwork:
        """Return the network that evaluates: the same sizes, to be loaded, frozen parts shared."""

    @abstractmethod
    def weights(self, v_max: float) -> Weights:
        """Return the kernel's view of the current parameters."""

    def read(self, features: Tensor, head: tuple[Tensor, Tensor]) -> Tensor:
        """Return logits [B, A, atoms] of features [B, h2]."""
        return linear(features, *head).view(len(features), -1, self.atoms)

    def logits(self, state: Tensor, head: tuple[Tensor, Tensor]) -> Tensor:
        """Return [B, A, atoms] for the actions of a `head`, which several calls may share."""
        return self.read(self.features(state), head)

    def q_values(self, state: Tensor, branches: Sequence[int] = ALL_BRANCHES) -> Tensor:
        """Return expected returns [B, A], reward units, the bypass included."""
        q = expected(self.logits(state, self.head(branches)), self.support)
        return lift(q, self.alpha(state)) if DIRECTION in branches else q

    def numpy_state(self) -> dict[str, Floats]:
        """Return copies of all parameters by name, on the host."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.state_dict().items()}

    def load_numpy(self, state: Mapping[str, Floats]) -> None:
        """Set all parameters from `numpy_state`'s mapping."""
        self.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})


def forecast(state: Tensor) -> Tensor:
    """Return slot 121 [B] of states [B, width], or of the newest in [B, stack, width]."""
    return (state if state.ndim == 2 else state[:, 0])[:, AUX_SLOT]


def lift(q: Tensor, addition: Tensor) -> Tensor:
    """Return values [B, A] whose first branch is direction, raised by [B, 4]."""
    return torch.cat([q[:, :N_DIRECTIONS] + addition, q[:, N_DIRECTIONS:]], dim=1)


def expected(logits: Tensor, atoms: Tensor) -> Tensor:
    """Return the mean [...] of the distributions softmax(logits [..., atoms]) on `atoms`."""
    return logits.softmax(-1) @ atoms


@cache
@torch.inference_mode(False)
def columns(branches: tuple[int, ...], device: torch.device) -> slice | Tensor:
    """Return where the actions of these branches lie among the 13; a slice when contiguous."""
    places = [i for b in branches for i in range(*SPANS[b])]
    if places == list(range(places[0], places[-1] + 1)):
        return slice(places[0], places[-1] + 1)
    # kept on the device: a list would go there in every update, and in no recorded one
    return torch.tensor(places, device=device)


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
