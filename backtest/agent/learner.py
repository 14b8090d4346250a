"""One learner: online and target network, Adam, and one update from a minibatch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtest.agent.actions import learned
from backtest.agent.loss import branch_loss, mixture_target
from backtest.agent.network import QNetwork, flatten
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
        self._online, self._target = flatten(self.online), flatten(self.target)
        # advanced indexing by a tensor of learned branches: [B, 4] -> [B, L]
        self._learned = torch.tensor(self.branches, device=device)
        self.copy_target()
        self.new_optimiser()

    def new_optimiser(self) -> None:
        """Start Adam afresh."""
        settings = self.settings
        self.optimiser = torch.optim.Adam(
            [self._online],
            lr=settings.learning_rate,
            eps=settings.adam_eps,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    @property
    def finite(self) -> bool:
        """All parameters are finite; waits for the device."""
        return bool(self._online.data.isfinite().all())

    def copy_target(self) -> None:
        """Make the target network equal to the online one."""
        self._target.data.copy_(self._online.data)
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
        return mixture_target(
            self.online.logits(batch.next_state, head),
            self.target.logits(batch.next_state, self._target_head),
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
            self.online.logits(batch.state, head),
            batch.action.index_select(1, self._learned),
            target,
            batch.weight,
            self.online.support,
            self.branches,
        )
        gradient = self._online.grad
        assert gradient is not None
        gradient.zero_()
        result.loss.backward()  # type: ignore[no-untyped-call]
        norm = gradient.norm()
        gradient *= (self.settings.gradient_clip / (norm + 1e-6)).clamp(max=1.0)
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
            self._target.data.lerp_(self._online.data, tau)
            self.new_target_head()
        elif self.updates % every == 0:
            self.copy_target()
