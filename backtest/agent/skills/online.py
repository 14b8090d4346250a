"""ONLINE: a window played in the order of time while the banks' directions follow what happens.

Act first, close the next bar, then update: the residual of decision b is applied before decision
b+1, so a bar can influence only later decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backtest.agent.actions import FIXED_ACTION, learned
from backtest.agent.bank import MISS, Bank
from backtest.agent.d2skill import NAMES, D2SkillActor
from backtest.agent.dueling import DIRECTION, expected, greedy, lift
from backtest.agent.loss import mixture_target
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.skill_gradients import Objective, advantage_objective, td_objective
from backtest.agent.skill_modes import Mode
from backtest.agent.weights import Floats, assemble
from backtest.config import Learner, SkillBank
from backtest.market.layout import N_BRANCHES, N_PORTFOLIO, STEP, Array, End
from backtest.market.portfolio import portfolio_state
from backtest.market.step import reset, step
from backtest.market.tape import Tape


@dataclass(frozen=True)
class OnlineRun:
    """One episode over a whole tape.

    Attributes:
        trace: `StepResult` records [n]; zero with end = DEAD after a ruin.
        action: uint8[n, 4].
        slots: int8[n, 2], what task and step bank retrieved; MISS without one.
        banks: the copies that were calibrated, by name.
    """

    trace: Array
    action: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int8]
    banks: dict[str, Bank]


def play_online(
    network: ScenarioNetwork,
    banks: Mapping[str, Bank],
    alpha: Mapping[str, float],
    tape: Tape,
    bar_part: Floats,
    settings: Learner,
    section: SkillBank,
    *,
    turn: bool = True,
) -> OnlineRun:
    """Play a tape once with copies of the banks in mode ONLINE; the originals stay as they are.

    Args:
        network: frozen.
        banks: closed ones by name; a bank that is not given is off.
        alpha: strength by bank.
        tape: bars [start, stop): decisions are taken on all but the last.
        bar_part: float32[n, 115], states of the same bars.
        settings: gamma and branches.
        section: of the banks; its residual decides which loss the directions follow.
        turn: let directions follow; False counts uses and influence only.
    """
    actor = D2SkillActor(network, section)
    for name, bank in banks.items():
        copy = Bank(bank.slots, bank.dim, key_dim=bank.key_dim, **bank.parameters)
        copy.load_state_dict(bank.state_dict())
        actor.banks[name] = copy
        actor.alpha[name] = alpha[name]
    actor.enable(task="task" in banks, step="step" in banks)
    actor.set_mode(Mode.ONLINE)
    actor.set_online_direction_update(turn)
    episode = _Episode(actor, tape, bar_part, settings, section)
    for t in range(len(bar_part) - 1):
        if not episode.step(t):
            break
    return OnlineRun(
        episode.trace, episode.action, episode.slots, {n: actor.banks[n] for n in banks}
    )


class _Episode:
    """The one episode of a tape."""

    def __init__(
        self,
        actor: D2SkillActor,
        tape: Tape,
        bar_part: Floats,
        settings: Learner,
        section: SkillBank,
    ) -> None:
        self.actor, self.tape, self.bar_part = actor, tape, bar_part
        self.settings, self.section = settings, section
        self.branches = learned(settings.branches)
        self.head = tuple(part.detach() for part in actor.head(self.branches))
        self.steps = len(bar_part) - 1
        self.account = reset(tape.params, 1)
        self.trace = np.zeros(self.steps, STEP.dtype)
        self.trace["end"] = End.DEAD
        self.action = np.zeros((self.steps, N_BRANCHES), np.uint8)
        self.slots = np.full((self.steps, len(NAMES)), MISS, np.int8)
        size = actor.network.network
        self.past: list[Tensor] = []  # the stack's earlier inputs, newest first
        self.stack = size.stack_size
        self.now = self._state(0)

    def step(self, t: int) -> bool:
        """Decide at bar t of the tape, close bar t + 1, learn; return whether it goes on."""
        actor, tape, network = self.actor, self.tape, self.actor.network
        head = (self.head[0], self.head[1])
        logits = actor.logits(self.now, head)
        q = expected(logits.detach(), network.support)
        if DIRECTION in self.branches:
            q = lift(q, network.alpha(self.now))
        choice = greedy(q, self.branches)
        action = np.array(FIXED_ACTION, np.uint8)
        action[list(self.branches)] = choice[0].cpu().numpy()
        self.action[t] = action
        self.slots[t] = [actor.found(name)[0] if name in actor.active else MISS for name in NAMES]
        bar = np.array([tape.start + t])
        self.account, result = step(
            tape.params,
            self.account,
            action[None].astype(np.int64),
            tape.at(bar),
            tape.at(bar + 1),
            np.array([t], np.int32),
            np.array([t == self.steps - 1]),
            tape.aux[[t]],
        )
        self.trace[t] = result[0]
        after = self._state(t + 1)
        if (self.slots[t] >= 0).any():  # without a correction there is nothing to learn about
            loss = self._objective(choice, result, after)
            loss(logits).backward()  # type: ignore[no-untyped-call]
            actor.update(loss)
        self.now = after
        return bool(result["end"][0] == End.RUNNING)

    def _state(self, t: int) -> Tensor:
        """Return the network's input [1, ...] before the decision at row t."""
        bar = np.array([self.tape.start + t])
        held = portfolio_state(
            self.tape.params, self.account, self.tape.at(bar), np.array([t], np.int32)
        )
        assert held.shape == (1, N_PORTFOLIO)
        slots = torch.from_numpy(assemble(self.bar_part[[t]], held))
        now = torch.cat([slots, self.actor.network.context(slots)], dim=1)
        if self.stack == 1:
            return now
        rows = [now, *self.past]
        self.past = rows[: self.stack - 1]
        rows += [torch.zeros_like(now)] * (self.stack - len(rows))
        return torch.stack(rows[: self.stack], dim=1)

    def _objective(self, choice: Tensor, result: Array, after: Tensor) -> Objective:
        """Return the loss of the decision against its one-step target.

        The Actor with its skills selects the next action; what evaluates it has none.
        """
        network, settings = self.actor.network, self.settings
        head = (self.head[0], self.head[1])
        going = result["end"][0] != End.TERMINATED
        with torch.no_grad():
            bypassed = DIRECTION in self.branches
            addition = network.alpha(after) if bypassed else None
            target = mixture_target(
                self.actor.logits(after, head, look=True),
                network.logits(after, head),
                torch.from_numpy(np.array([result["reward"][0]], np.float32)),
                torch.full((1,), settings.gamma if going else 0.0),
                network.support,
                self.branches,
                None if addition is None else (addition, addition),
            )
        if self.section.residual == "td":
            return td_objective(choice, target, network.support, self.branches)
        addition = network.alpha(self.now) if bypassed else None
        goal = target @ network.support
        return advantage_objective(choice[:, 0], goal, network.support, addition)
