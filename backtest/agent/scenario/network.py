"""The scenario network in torch: queries of the account attend to a forecaster's scenarios.

Layers and flat orders are those of `backtest.agent.scenario_weights`, which is its oracle. What
the frozen forecaster says of a bar stands behind the 128 slots of a state, so it is computed once
a bar and not once a forward pass. Inside, the batch is the last axis: every other axis is short.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from backtest.agent.dueling import DuelingNetwork
from backtest.agent.linear import linear_columns
from backtest.agent.scenario.attention import Attention, Tokens
from backtest.agent.scenario.forecaster import Forecaster
from backtest.agent.scenario_layout import GROUPS, context_width, positions, step_dim, task_dim
from backtest.agent.scenario_weights import ScenarioWeights, export_scenario
from backtest.config import Network
from backtest.market.layout import STATE_DIM


class Queries(nn.Module):
    """What the account and the calendar ask of each scenario: three groups of state slots."""

    slots: Tensor  # [19], group by group

    def __init__(self, outputs: int) -> None:
        """Build one layer of `outputs` = S*L values for each group."""
        super().__init__()
        self.balance = nn.Linear(len(GROUPS["balance"]), outputs)
        self.position = nn.Linear(len(GROUPS["position"]), outputs)
        self.calendar = nn.Linear(len(GROUPS["calendar"]), outputs)
        slots = torch.tensor([slot for group in GROUPS.values() for slot in group])
        self.register_buffer("slots", slots, persistent=False)

    def forward(self, columns: Tensor) -> Tensor:
        """Return the task context [3*S*L, B] of inputs [128 + C, B]."""
        first, last = self.balance.in_features, -self.calendar.in_features
        slots = columns.index_select(0, self.slots)
        return torch.cat(
            [
                on_columns(self.balance, slots[:first]),
                on_columns(self.position, slots[first:last]),
                on_columns(self.calendar, slots[last:]),
            ]
        )


class ScenarioNetwork(DuelingNetwork):
    """Return distributions of all actions, float32.

    Input is [B, 128 + C]: the state and `Forecaster.context` of its bar. With a stack it is
    [B, stack, 128 + C], newest first; rows of zeros stand for steps before the episode, whose
    interpretation is 0 because their scenario weights are.
    """

    pe: Tensor  # [H, L]

    def __init__(
        self,
        network: Network,
        v_max: float = 1.0,
        rng: np.random.Generator | None = None,
        *,
        forecaster: Forecaster | None = None,
        critic: bool = False,
    ) -> None:
        """Build the network.

        Args:
            network: its sizes.
            v_max: upper end of the support, reward units.
            rng: draws all weights but the forecaster's; None leaves them to be loaded.
            forecaster: one to share; None makes one, to be loaded.
            critic: it evaluates, and must never be given skills.
        """
        super().__init__()
        self.network, self.critic = network, critic
        s, h, width = network.scenarios, network.horizon, network.latent
        h1, h2 = network.hidden
        self.forecaster = Forecaster(network) if forecaster is None else forecaster
        self.forecaster.requires_grad_(False)
        self.query = Queries(s * width)
        self.latent = nn.Linear(width, width)
        self.uncertainty = nn.Linear(1, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.first = nn.Linear(network.stack_size * task_dim(network), h1)
        self.hidden = nn.Linear(h1, h2)
        self.register_buffer("pe", torch.from_numpy(positions(h, width)), persistent=False)
        self.end_in_heads(h2, network.atoms, v_max)
        # columns of the input behind the 128 slots
        sizes = (step_dim(network), s * h, s)
        self._places = np.cumsum([STATE_DIM, *sizes]).tolist()
        assert self._places[-1] == STATE_DIM + context_width(network)
        if rng is not None:
            self.initialise(rng)

    @property
    def context(self) -> Callable[[Tensor], Tensor]:
        """What gives the columns of a state behind its 128 slots: the forecaster."""
        return self.forecaster.context

    def trained(self) -> dict[str, nn.Parameter]:
        """Return what the C51 loss trains by name: the frozen forecaster is no part of it."""
        return {n: p for n, p in super().trained().items() if not n.startswith("forecaster.")}

    def contexts(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden states that skills correct: task [B, 3*S*L] and step [B, S*H*L]."""
        now = state if state.ndim == 2 else state[:, 0]
        return self.query(now.t()).t(), self._step(now).t()

    def arranged(self, state: Tensor) -> Tensor:
        """Return the same states, each column in one piece."""
        return state.t().contiguous().t() if state.ndim == 2 else state

    def features(self, state: Tensor) -> Tensor:
        """Return the trunk's last layer [B, h2]."""
        return self._features_from(*self.contexts(state), state)

    def logits_from(
        self, task: Tensor, step: Tensor, state: Tensor, head: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Return logits [B, A, atoms] from (corrected) contexts; with `contexts`' own, `logits`.

        Args:
            task: [B, 3*S*L].
            step: [B, S*H*L].
            state: the input; earlier steps of a stack are read from it as they are.
            head: of `head`.
        """
        return self.read(self._features_from(task, step, state), head)

    def _features_from(self, task: Tensor, step: Tensor, state: Tensor) -> Tensor:
        now = state if state.ndim == 2 else state[:, 0]
        # layouts decide the order of sums: the same bits whoever made the contexts
        seen = self._interpret(task.t().contiguous(), step.t().contiguous(), now)
        if state.ndim == 3:
            past = state[:, 1:].flatten(0, 1)
            older = self._interpret(self.query(past.t()), self._step(past), past)
            older = older.view(len(older), len(state), -1).permute(2, 0, 1)  # [stack-1, 3*S*L, B]
            seen = torch.cat([seen, older.flatten(0, 1)])
        first, second = self.first, self.hidden
        hidden = torch.relu(linear_columns(seen, first.weight, first.bias))
        return torch.relu(linear_columns(hidden, second.weight, second.bias)).t()

    def _step(self, now: Tensor) -> Tensor:
        """Return the step context [S*H*L, B]."""
        first, last = self._places[:2]
        latent = now[:, first:last].t().contiguous().view(-1, self.network.latent, len(now))
        weight = self.latent.weight.expand(len(latent), -1, -1)
        step = torch.baddbmm(self.latent.bias[None, :, None], weight, latent)
        return step.view(-1, len(now))

    def _interpret(self, task: Tensor, step: Tensor, now: Tensor) -> Tensor:
        """Return the interpretation [3*S*L, B] of inputs [B, 128 + C]."""
        s, h, width = self.network.scenarios, self.network.horizon, self.network.latent
        _, first, second, last = self._places
        log_u = now[:, first:second].t().contiguous().view(s, h, 1, -1)
        tokens = self._tokens(step.view(s, h, width, -1), log_u)
        query = task.view(3, s, width, -1)
        out: Tensor = Attention.apply(query, tokens, self.network.top_k)  # type: ignore[no-untyped-call]
        weighted = out * now[:, second:last].t().contiguous().view(s, 1, -1)
        return weighted.view(3 * s * width, -1)

    def _tokens(self, step: Tensor, log_u: Tensor) -> Tensor:
        """Return keys and values [S, H, L, B] from step [S, H, L, B] and log U [S, H, 1, B]."""
        uncertainty, norm = self.uncertainty, self.norm
        tokens: Tensor = Tokens.apply(  # type: ignore[no-untyped-call]
            step,
            log_u,
            uncertainty.weight[:, 0],
            uncertainty.bias,
            norm.weight,
            norm.bias + self.pe,
            norm.eps,
        )
        return tokens

    def make_critic(self) -> ScenarioNetwork:
        """Return the network that evaluates: to be loaded, around the same forecaster."""
        return ScenarioNetwork(self.network, forecaster=self.forecaster, critic=True)

    def weights(self, v_max: float) -> ScenarioWeights:
        """Return the kernel's view of the current parameters."""
        return export_scenario(self.numpy_state(), self.network, v_max)


def on_columns(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return the output [out, B] of a layer of few inputs [in, B]."""
    return torch.addmm(layer.bias[:, None], layer.weight, x)
