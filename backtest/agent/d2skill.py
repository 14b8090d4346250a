"""The Actor with skills: a scenario network whose hidden states two banks correct.

Act first (`logits`), backward second, `update` third: an observation can influence later decisions
only. Without an enabled bank every call is the network's own, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backtest.agent import skill_file
from backtest.agent.bank import ABSTAIN, MISS, Bank, Snapshot
from backtest.agent.bank.ordered import norm
from backtest.agent.bank.retrieval import Slots, retrieve_rows
from backtest.agent.bank.utility import influence_of
from backtest.agent.dueling import ALL_BRANCHES, DIRECTION, expected, lift
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.scenario_layout import step_dim, task_dim
from backtest.agent.skill_gradients import (
    Head,
    Objective,
    Shift,
    kept,
    residuals,
    undo_mean,
    watched,
)
from backtest.agent.skill_modes import APPLY, COUNT, Mode
from backtest.agent_sections import SkillBank
from backtest.errors import ConfigError, StoreError
from backtest.features.names import MARKET_DIM

NAMES = ("task", "step")


@dataclass(frozen=True)
class Decided:
    """One forward pass that an update may follow."""

    state: Tensor
    head: Head
    hidden: dict[str, Tensor]  # as the trunk read them: corrected where a skill was found
    keys: dict[str, np.ndarray[Any, np.dtype[np.float32]]]  # [B, K], queries of the banks
    slots: dict[str, Slots]  # [B]
    added: dict[str, Tensor]  # [B, D], zero rows without a skill


class D2SkillActor:
    """A scenario network and its two banks; starts DISABLED with both banks off."""

    def __init__(
        self, network: ScenarioNetwork, bank: SkillBank | None = None, *, critic: bool = False
    ) -> None:
        """Wrap a network; the banks start empty.

        Args:
            network: used as it is, parameters included.
            bank: parameters of both banks; None: the defaults. With key = "features" the step bank
                is searched by the 42 scaled market features.
            critic: refused, as is a network made for evaluation: what evaluates has no skills.

        Raises:
            ConfigError: for a critic.
        """
        if critic or network.critic:
            raise ConfigError(
                "D2SkillActor: the critic has no skills; give it the plain network and the actor "
                "the banks"
            )
        section = bank or SkillBank()
        sizes = network.network
        parameters = section.model_dump(exclude={"slots", "key"})
        slots = section.slots or sizes.scenarios
        by_features = section.key == "features"
        self.network = network
        self.banks = {
            "task": Bank(slots, task_dim(sizes), **parameters),
            "step": Bank(
                slots,
                step_dim(sizes),
                key_dim=MARKET_DIM if by_features else None,
                key=section.key,
                **parameters,
            ),
        }
        self.alpha: dict[str, float] = dict.fromkeys(NAMES, section.alpha)
        self.enabled = dict.fromkeys(NAMES, False)
        self.online_direction = False
        self.collected_on: str | None = None  # hash of the weights that the banks belong to
        self.mode = Mode.DISABLED
        self._snapshots: dict[str, Snapshot] = {}
        self._decided: Decided | None = None

    @property
    def weight_hash(self) -> str:
        """Hash of the network's present weights, as policies have it."""
        return skill_file.weight_hash(self.network)

    def set_mode(self, mode: Mode | str) -> None:
        """Change the mode; forgets a forward pass whose update has not come.

        Raises:
            StoreError: skills shall be applied to weights they were not collected on.
        """
        mode = Mode(mode.lower())
        if mode is not Mode.DISABLED:
            self._belong(mode)
        self.mode, self._decided = mode, None
        self.refresh()

    def _belong(self, mode: Mode) -> None:
        """Tie the banks to the present weights, or refuse."""
        holding = any(not bank.blank for bank in self.banks.values())
        present = self.weight_hash
        if holding and self.collected_on not in (None, present):
            raise StoreError(
                f"set_mode {mode}: the banks were collected on weights {self.collected_on:.12}, "
                f"the network has {present:.12}; clear(contexts=True) and collect again"
            )
        self.collected_on = present

    def enable(self, task: bool, step: bool) -> None:
        """Switch each bank on or off; forgets a forward pass whose update has not come."""
        self.enabled = {"task": task, "step": step}
        self._decided = None
        self.refresh()

    def set_online_direction_update(self, on: bool) -> None:
        """Let ONLINE updates turn the directions of retrieved skills, or not."""
        self.online_direction = on

    def refresh(self) -> None:
        """Take new snapshots: what retrieval reads until the next refresh."""
        explore = self.mode is Mode.EVALUATE
        self._snapshots = {
            name: self.banks[name].snapshot(self.alpha[name], explore=explore)
            for name in NAMES
            if self._active(name)
        }

    def _active(self, name: str) -> bool:
        return self.enabled[name] and self.mode is not Mode.DISABLED

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the banks that the mode uses."""
        return tuple(self._snapshots)

    def found(self, name: str) -> Slots:
        """Return what a bank found for the last decisions an update may follow, int32[B].

        Raises:
            RuntimeError: there are none.
        """
        if self._decided is None:
            raise RuntimeError("found: no forward pass with gradients came before")
        return self._decided.slots[name]

    def head(self, branches: tuple[int, ...] = ALL_BRANCHES) -> Head:
        """Return the network's head for these branches."""
        return self.network.head(branches)

    def q_values(self, state: Tensor, branches: tuple[int, ...] = ALL_BRANCHES) -> Tensor:
        """Return expected returns [B, A], reward units, of one decision per row."""
        q = expected(self.logits(state, self.head(branches)), self.network.support)
        return lift(q, self.network.alpha(state)) if DIRECTION in branches else q

    def logits(self, state: Tensor, head: Head, *, look: bool = False) -> Tensor:
        """Return [B, A, atoms]: one decision per row, with what the mode does to the banks.

        Args:
            state: [B, 128 + C], or with a stack [B, stack, 128 + C].
            head: of `head`.
            look: the same search and corrections with no side effect, for values of states that
                are not acted on.
        """
        if not self._snapshots:
            return self.network.logits(state, head)
        now = state if state.ndim == 2 else state[:, 0]
        hidden = dict(zip(NAMES, self.network.contexts(state), strict=True))
        keys, slots, added = {}, {}, {}
        for name, snapshot in self._snapshots.items():
            features = self.banks[name].section.key == "features"
            query = now[:, :MARKET_DIM] if features else hidden[name]
            keys[name] = query.detach().cpu().numpy()
            slots[name] = retrieve_rows(snapshot, keys[name])
            if self.mode in APPLY:
                hit = slots[name] >= 0
                rows = np.where(hit[:, None], snapshot.shift[slots[name]], np.float32(0))
                added[name] = torch.from_numpy(rows).to(state.device)
                place = torch.from_numpy(hit[:, None]).to(state.device)
                hidden[name] = Shift.apply(hidden[name], added[name], place)  # type: ignore[no-untyped-call]
        if not look:
            if self.mode in COUNT:
                self._count_uses(slots)
            if torch.is_grad_enabled() and self.mode is not Mode.INFERENCE:
                hidden = {name: watched(h) for name, h in hidden.items()}
                self._decided = Decided(state, head, hidden, keys, slots, added)
        return self.network.logits_from(hidden["task"], hidden["step"], state, head)

    def _count_uses(self, slots: dict[str, Slots]) -> None:
        for name, found in slots.items():
            uses = np.bincount(found[found >= 0], minlength=self.banks[name].slots)
            misses, abstentions = int((found == MISS).sum()), int((found == ABSTAIN).sum())
            self.banks[name].add_uses(uses, uses > 0, misses, abstentions)

    def update(self, loss: Objective | None = None) -> dict[str, tuple[Slots, Slots]]:
        """Use the gradients of the last `logits`; call it after the loss's backward.

        COLLECT learns skills; EVALUATE and ONLINE add influence, ONLINE also turns directions when
        that is on. DISABLED and INFERENCE do nothing.

        Args:
            loss: the function of logits whose mean over rows was taken backward; needed by the
                trapezoid rule, which looks at the state without the correction as well.

        Returns:
            Decisions and slots of each enabled bank in COLLECT, int32[B]; else nothing.

        Raises:
            RuntimeError: no forward pass with gradients came before, or it was used already.
            ValueError: the trapezoid rule without a loss.
        """
        if not self._snapshots or self.mode is Mode.INFERENCE:
            return {}
        decided = self._decided
        if decided is None or any(decided.hidden[n].grad is None for n in self._snapshots):
            raise RuntimeError("update without backward: call logits, then backward on its loss")
        after = {name: undo_mean(kept(decided.hidden[name])) for name in self._snapshots}
        result = {}
        if self.mode is Mode.COLLECT:
            for name, g in after.items():
                # where the query is not the hidden state, its size must be told
                size = norm(decided.hidden[name].detach().cpu().numpy())
                result[name] = self.banks[name].update_rows(decided.keys[name], g, size)
        else:
            self._add_influence(decided, after, loss)
            if self.mode is Mode.ONLINE and self.online_direction:
                self._turn(decided, after)
        self._decided = None
        if self.mode is not Mode.EVALUATE:  # there a snapshot lasts as long as its episode
            self.refresh()
        return result

    def _add_influence(
        self, decided: Decided, after: dict[str, Any], loss: Objective | None
    ) -> None:
        for name in self._snapshots:
            bank, slots = self.banks[name], decided.slots[name]
            if not (slots >= 0).any():
                continue
            trapezoid = bank.section.influence_rule == "trapezoid"
            before = after[name]
            if trapezoid:
                if loss is None:
                    raise ValueError("influence_rule = trapezoid: pass the loss to update")
                others = {n: d for n, d in decided.added.items() if n != name}
                before = residuals(self.network, decided.state, decided.head, loss, others)[name]
            d = decided.added[name].cpu().numpy()
            influence = influence_of(before, after[name], d, trapezoid=trapezoid)
            for row in np.flatnonzero(slots >= 0):
                bank.add_influence(int(slots[row]), float(influence[row]))

    def _turn(self, decided: Decided, after: dict[str, Any]) -> None:
        for name, slots in decided.slots.items():
            for row in np.flatnonzero(slots >= 0):
                self.banks[name].update_direction(int(slots[row]), after[name][row])

    def reset_episode_influence(self) -> None:
        """Begin an episode: no influence yet, snapshots as the banks are now."""
        if self.mode in COUNT:
            for bank in self.banks.values():
                bank.reset_influence()
        self.refresh()

    def task_utility(self, delta: float) -> None:
        """End an episode for the task bank: its paired Delta. EVALUATE and ONLINE only."""
        self._end("task", delta)

    def step_utility(self, delta: float) -> None:
        """End an episode for the step bank: its paired Delta. EVALUATE and ONLINE only."""
        self._end("step", delta)

    def _end(self, name: str, delta: float) -> None:
        if self.mode in COUNT and self.enabled[name]:
            self.banks[name].end_episode(delta)

    def close_collection(self) -> None:
        """End COLLECT for both banks."""
        for bank in self.banks.values():
            bank.close_collection()
        self.refresh()

    def clear(self, contexts: bool = False) -> None:
        """Empty both banks; what they know of contexts goes only with `contexts`."""
        for bank in self.banks.values():
            bank.clear(contexts)
        self._decided = None
        self.refresh()

    @torch.no_grad()
    def soft_update(self, source: D2SkillActor | ScenarioNetwork, tau: float) -> None:
        """Move the network's parameters by tau towards another's; banks are no part of it.

        The frozen forecaster is not moved.
        """
        other = source.network if isinstance(source, D2SkillActor) else source
        theirs = dict(other.named_parameters())
        for name, parameter in self.network.named_parameters():
            if not name.startswith("forecaster."):
                parameter.lerp_(theirs[name], tau)

    def save(self, path: Path | str) -> None:
        """Write network, banks and settings to one file, atomically."""
        settings = {
            "enabled": self.enabled,
            "alpha": self.alpha,
            "online_direction": self.online_direction,
            "collected_on": self.collected_on,
        }
        skill_file.save(Path(path), self.network, self.banks, settings)

    def load(self, path: Path | str) -> None:
        """Restore a file of `save`; the mode is DISABLED afterwards.

        Raises:
            StoreError: missing, truncated, damaged, of another version, network or bank size, or
                banks of other weights than the file's; nothing is changed then.
        """
        found = skill_file.load(Path(path), self.network, self.banks)
        skill_file.restore(self.network, found)
        for name, bank in self.banks.items():
            bank.load_state_dict(found.banks[name])
        self.enabled, self.alpha = found.settings["enabled"], found.settings["alpha"]
        self.online_direction = found.settings["online_direction"]
        self.collected_on = found.settings["collected_on"]
        self.mode, self._decided = Mode.DISABLED, None
        self.refresh()
