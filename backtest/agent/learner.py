"""One learner: online and target network, Adam, and one update from a minibatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtest.agent.actions import learned
from backtest.agent.bypass import bypass_gradient, moments, taken
from backtest.agent.dueling import DIRECTION
from backtest.agent.kinds import BypassMode
from backtest.agent.loss import branch_loss, mixture_target
from backtest.agent.network import build, flatten
from backtest.agent.replay import Batch
from backtest.agent.support import widen
from backtest.agent.weights import Floats
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
        *,
        forecaster: Mapping[str, Floats] | None = None,
        bypass: BypassMode = "off",
    ) -> None:
        """Build both networks from one draw of weights; `rng` is used for nothing else.

        Args:
            network: kind and sizes.
            settings: of the learner.
            rng: draws the weights.
            device: torch device.
            forecaster: parameters of the scenario kind's frozen forecaster by name.
            bypass: whether and how the forecast's way around the network learns.
        """
        self.settings = settings
        self.branches = learned(settings.branches)
        self.bypass: BypassMode = bypass if DIRECTION in self.branches else "off"
        self.updates = 0
        self.v_max = 1.0
        self.online = build(network, rng, forecaster).to(device)
        self.target = self.online.make_critic().to(device)
        self.target.requires_grad_(False)
        self._online, self._target = flatten(self.online), flatten(self.target)
        self._trained = list(self.online.trained().values())
        # advanced indexing by a tensor of learned branches: [B, 4] -> [B, L]
        self._learned = torch.tensor(self.branches, device=device)
        # in place ever after, as all that a recorded update reads (`backtest.agent.update_graph`)
        weight, bias = self.target.head(self.branches)
        self._target_head = weight.detach().clone(), bias.detach().clone()
        self.copy_target()
        groups: list[dict[str, Any]] = [
            {"params": [self._online], "weight_decay": settings.weight_decay},
            {"params": [self.online.alpha.weight]},  # of the bypass, which has a loss of its own
        ]
        self.optimiser = torch.optim.Adam(
            groups,
            lr=settings.learning_rate,
            eps=settings.adam_eps,
            fused=True,
            capturable=self._online.is_cuda,
        )

    def restart_optimiser(self) -> None:
        """Start Adam afresh."""
        for held in self.optimiser.state.values():
            for tensor in held.values():
                tensor.zero_()

    @property
    def finite(self) -> bool:
        """All parameters are finite; waits for the device."""
        parts = (self._online.data, self.online.alpha.weight.data)
        return all(bool(part.isfinite().all()) for part in parts)

    def bypass_moments(self) -> Floats | None:
        """Return the bypass's weights and Adam moments, float32[3, 4]; None without it."""
        if self.bypass == "off":
            return None
        return moments(self.online.alpha, self.optimiser).cpu().numpy()

    def copy_target(self) -> None:
        """Make the target network equal to the online one."""
        self._target.data.copy_(self._online.data)
        self.target.alpha.weight.data.copy_(self.online.alpha.weight.data)
        self.new_target_head()

    def new_target_head(self) -> None:
        """Fold the target's head again; due whenever its parameters changed."""
        with torch.no_grad():
            for kept, folded in zip(
                self._target_head, self.target.head(self.branches), strict=True
            ):
                kept.copy_(folded)

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
        self.restart_optimiser()

    @torch.no_grad()
    def targets(self, batch: Batch, head: tuple[Tensor, Tensor]) -> Tensor:
        """Return the target distributions [B, atoms]; `head` is the online network's."""
        state, additions = self.online.arranged(batch.next_state), None
        if self.bypass != "off":
            additions = self.online.alpha(state), self.target.alpha(state)
        return mixture_target(
            self.online.logits(state, head),
            self.target.logits(state, self._target_head),
            batch.returns,
            batch.bootstrap,
            self.online.support,
            self.branches,
            additions,
        )

    def update(self, batch: Batch) -> Update:
        """Take one gradient step and move the target network when it is due."""
        update = self.step(batch)
        self.advance()
        return update

    def step(self, batch: Batch) -> Update:
        """Take one gradient step; nothing in it depends on the host or waits for the device."""
        head = self.online.head(self.branches)
        target = self.targets(batch, head)
        action = batch.action.index_select(1, self._learned)
        addition = None
        if self.bypass != "off":
            addition = taken(self.online.alpha(batch.state), action[:, 0])
        result = branch_loss(
            self.online.logits(batch.state, head),
            action,
            target,
            batch.weight,
            self.online.support,
            self.branches,
            addition,
        )
        if self.bypass != "off":
            alpha = self.online.alpha
            alpha.weight.grad = bypass_gradient(
                alpha, batch.state, action[:, 0], result.values[:, 0], result.goal, batch.weight
            )
        norm = self._clipped(result.loss)
        self.optimiser.step()
        edge = (target[:, 0] + target[:, -1]).mean()
        figures = torch.stack([result.loss.detach(), result.q, edge, norm])
        return Update(figures, result.error)

    def _clipped(self, loss: Tensor) -> Tensor:
        """Put the clipped gradient of the loss where Adam reads it; return its norm before, []."""
        gradient = self._online.grad
        assert gradient is not None
        parts = torch.autograd.grad(loss, self._trained)
        torch.cat([part.reshape(-1) for part in parts], out=gradient)
        norm: Tensor = gradient.norm()
        gradient *= (self.settings.gradient_clip / (norm + 1e-6)).clamp(max=1.0)
        return norm

    @torch.no_grad()
    def advance(self) -> None:
        """Count a gradient step and move the target network when it is due."""
        self.updates += 1
        every, tau = self.settings.target_every, self.settings.tau
        if every == 0:
            self._target.data.lerp_(self._online.data, tau)
            self.target.alpha.weight.data.lerp_(self.online.alpha.weight.data, tau)
            self.new_target_head()
        elif self.updates % every == 0:
            self.copy_target()
