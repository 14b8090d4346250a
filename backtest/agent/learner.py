"""One learner: online and target network, Adam, and one update from a minibatch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtest.agent.actions import learned
from backtest.agent.loss import branch_loss, mixture_target
from backtest.agent.network import QNetwork
from backtest.agent.replay import Batch
from backtest.agent.support import widen
from backtest.config import Learner, Network


class Update(NamedTuple):
    """What an update reports, all on the device."""

    figures: Tensor  # [4]: loss, mean Q of the actions taken, edge-atom mass, gradient norm
    error: Tensor  # [B], sum over branches of |td|


class C51Learner:
    """Double, branching, dueling C51 with a target network."""

    def __init__(
        self,
        network: Network,
        settings: Learner,
        rng: np.random.Generator,
        device: str = "cpu",
    ) -> None:
        """Build both networks from one draw of weights; `rng` is used for nothing else."""
        self.settings = settings
        self.branches = learned(settings.branches)
        self.updates = 0
        self.v_max = 1.0
        self.online = QNetwork(network.hidden, network.atoms, rng=rng).to(device)
        self.target = QNetwork(network.hidden, network.atoms).to(device)
        self.target.requires_grad_(False)
        # advanced indexing by a tensor of learned branches: [B, 4] -> [B, L]
        self._learned = torch.tensor(self.branches, device=device)
        self.copy_target()
        self.new_optimiser()

    def new_optimiser(self) -> None:
        """Start Adam afresh."""
        settings = self.settings
        self.optimiser = torch.optim.Adam(
            self.online.parameters(),
            lr=settings.learning_rate,
            eps=settings.adam_eps,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def copy_target(self) -> None:
        """Make the target network equal to the online one."""
        self.target.load_state_dict(self.online.state_dict())
        self.new_target_head()

    def new_target_head(self) -> None:
        """Fold the target's head again; due whenever its parameters changed."""
        self._target_head = self.target.head(self.branches)

    def set_range(self, v_max: float) -> None:
        """Place the atoms of both networks on [-v_max, v_max] without touching weights."""
        self.v_max = v_max
        self.online.set_range(v_max)
        self.target.set_range(v_max)

    def widen_range(self, factor: float) -> None:
        """Widen the support, carry the heads over, and start target and optimiser afresh."""
        self.online.load_numpy(widen(self.online.numpy_state(), factor))
        self.set_range(self.v_max * factor)
        self.copy_target()
        self.new_optimiser()

    @torch.no_grad()
    def targets(self, batch: Batch, head: tuple[Tensor, Tensor]) -> Tensor:
        """Return the target distributions [B, atoms]; `head` is the online network's."""
        bars, portfolio = batch.next_bar_part, batch.next_portfolio
        return mixture_target(
            self.online.logits(bars, portfolio, head),
            self.target.logits(bars, portfolio, self._target_head),
            batch.returns,
            batch.bootstrap,
            self.online.support,
            self.branches,
        )

    def update(self, batch: Batch) -> Update:
        """Take one gradient step and move the target network when it is due."""
        head = self.online.head(self.branches)
        target = self.targets(batch, head)
        result = branch_loss(
            self.online.logits(batch.bar_part, batch.portfolio, head),
            batch.action.index_select(1, self._learned),
            target,
            batch.weight,
            self.online.support,
            self.branches,
        )
        self.optimiser.zero_grad(set_to_none=True)
        result.loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(
            self.online.parameters(), self.settings.gradient_clip, foreach=True
        )
        self.optimiser.step()
        self.updates += 1
        self._move_target()
        edge = (target[:, 0] + target[:, -1]).mean()
        figures = torch.stack([result.loss.detach(), result.q, edge, norm])
        return Update(figures, result.error)

    @torch.no_grad()
    def _move_target(self) -> None:
        every, tau = self.settings.target_every, self.settings.tau
        if every == 0:
            pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
            for old, new in pairs:
                old.lerp_(new, tau)
            self.new_target_head()
        elif self.updates % every == 0:
            self.copy_target()
