"""Decisions of a frozen policy in the order of time, ready for gradients with respect to h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from backtest.agent.actions import learned
from backtest.agent.columns import host
from backtest.agent.dueling import DIRECTION
from backtest.agent.experience import Experience
from backtest.agent.loss import mixture_target
from backtest.agent.replay import Batch, Replay
from backtest.agent.returns import n_step
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.skill_gradients import Objective, advantage_objective, residuals, td_objective
from backtest.agent.weights import Floats
from backtest.config import Learner

RESIDUAL_STEPS = 5  # steps of the discounted reward in the advantage residual, no bootstrap
BLOCK = 1024  # rows a backward pass
Rows = npt.NDArray[np.int64]
Residual = Literal["advantage", "td"]


class Decisions:
    """The decisions of an experience, episode by episode, each in the order of time.

    Attributes:
        complete: bool[M], the residual is defined: for advantage five steps of reward were seen, or
            the episode TERMINATED within them.
    """

    def __init__(
        self,
        network: ScenarioNetwork,
        bar_part: Floats,
        first_bar: int,
        experience: Experience,
        settings: Learner,
        residual: Residual,
        device: str = "cpu",
    ) -> None:
        """Lay the decisions out.

        Args:
            network: frozen; it acts, and evaluates in the target of the td residual.
            bar_part: float32[n, 115], the bars that the episodes lie on.
            first_bar: global index of its row 0.
            experience: N episodes.
            settings: gamma, n_step and branches.
            residual: which loss the gradients are of.
            device: torch device.
        """
        self.network, self.residual = network, residual
        self.branches = learned(settings.branches)
        self.head = tuple(part.detach() for part in network.head(self.branches))
        size = network.network
        self.replay = Replay(
            max(experience.steps, 1),
            bar_part,
            first_bar,
            device,
            prioritised=False,
            stack_size=size.stack_size,
            context=network.context,
        )
        self.replay.insert(experience, settings.n_step, settings.gamma, 0)
        step, episode = np.nonzero(host(experience.alive))
        # the replay lays rows out step by step
        self._row = torch.from_numpy(np.lexsort((step, episode))).to(device)
        self.step, self.episode = (a[self._row.cpu().numpy()] for a in (step, episode))
        value, steps, bootstrap = map(host, n_step(experience, RESIDUAL_STEPS, settings.gamma))
        place = self.step, self.episode
        self._returns = torch.from_numpy(value[place]).to(device)
        whole = (steps[place] == RESIDUAL_STEPS) | (bootstrap[place] == 0)
        self.complete: npt.NDArray[np.bool_] = whole | (residual == "td")

    def __len__(self) -> int:
        return len(self.step)

    def batch(self, rows: Rows) -> Batch:
        """Return the decisions `rows` int64[B] as a minibatch."""
        return self.replay.take(self._row[torch.from_numpy(rows).to(self._row.device)])

    @torch.no_grad()
    def contexts(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the task float32[B, Dt] and step contexts [B, Ds] of decisions."""
        task, step = self.network.contexts(self.batch(rows).state)
        return task.cpu().numpy(), step.cpu().numpy()

    def blocks(self, rows: Rows, size: int = BLOCK) -> Iterator[Rows]:
        """Yield the rows in order, at most `size` at a time."""
        for first in range(0, len(rows), size):
            yield rows[first : first + size]

    def gradients(self, rows: Rows, added: Mapping[str, Floats] | None = None) -> dict[str, Floats]:
        """Return g = -dL/dh of decisions, float32[B, D] by bank name.

        Args:
            rows: int64[B].
            added: corrections float32[B, D] by bank name, at which the gradient is taken; the
                action and the target stay those of the uncorrected network.
        """
        batch = self.batch(rows)
        moved = None
        if added is not None:
            device = batch.state.device
            moved = {name: torch.from_numpy(d).to(device) for name, d in added.items()}
        loss = self._objective(rows, batch)
        head = (self.head[0], self.head[1])
        return residuals(self.network, batch.state, head, loss, moved)

    def _objective(self, rows: Rows, batch: Batch) -> Objective:
        network, bypassed = self.network, DIRECTION in self.branches
        support = network.support
        if self.residual == "advantage":
            returns = self._returns[torch.from_numpy(rows).to(self._returns.device)]
            addition = network.alpha(batch.state) if bypassed else None
            return advantage_objective(batch.action[:, DIRECTION], returns, support, addition)
        with torch.no_grad():
            logits = network.logits(batch.next_state, (self.head[0], self.head[1]))
            addition = network.alpha(batch.next_state) if bypassed else None
            target = mixture_target(
                logits,
                logits,
                batch.returns,
                batch.bootstrap,
                support,
                self.branches,
                None if addition is None else (addition, addition),
            )
        action = batch.action[:, list(self.branches)]
        return td_objective(action, target, support, self.branches)
