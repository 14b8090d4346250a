"""Replay of bar indices: a ring of transitions, drawn in proportion to priority or uniformly.

Priorities are integers (fixed point), so their running sum is exact and a draw is the same on
every device. Observations are gathered from the bar table when drawn, never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtest.agent.columns import tensor
from backtest.agent.experience import Experience
from backtest.agent.returns import n_step
from backtest.agent.weights import Floats, assemble
from backtest.market.layout import N_BRANCHES, N_PORTFOLIO, PORTFOLIO_SLOTS, End

PRIORITY_ONE = 2**30  # fixed point of a priority; 2^22 rows of 2^10 times that still fit 62 bits
PRIORITY_LIMIT = 2**40
PRIORITY_FLOOR = 1e-6  # in units of `scale`: a perfectly predicted row can still be drawn
TABLE_BYTES = 2**29  # of contexts kept for all bars; beyond it they are computed when drawn
_ROWS = 8192  # contexts computed at a time

Context = Callable[[Tensor], Tensor]  # states [M, 128] -> bar-only columns [M, C]


@dataclass(frozen=True)
class Batch:
    """One minibatch of B rows, ready for the networks.

    A state is [width], or with a stack [stack, width]: the state before each of the last steps,
    newest first, zeros before the episode began. width = 128 + C.
    """

    state: Tensor  # [B, ...]
    action: Tensor  # int64[B, 4]
    returns: Tensor  # [B], n-step return
    bootstrap: Tensor  # [B], gamma^k, 0 after TERMINATED
    next_state: Tensor  # [B, ...], after the steps summed
    weight: Tensor  # [B], importance weights, maximum 1


class Drawn(NamedTuple):
    """K minibatches of B rows by their places in the replay."""

    row: Tensor  # int64[K, B]
    weight: Tensor  # float32[K, B], importance weights, maximum 1 in each minibatch


def row_columns(stack_size: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return dtype and shape of every column of a row, by name."""
    columns: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "bar": (torch.int32, ()),
        "portfolio": (torch.float32, (N_PORTFOLIO,)),
        "action": (torch.uint8, (N_BRANCHES,)),
        "returns": (torch.float32, ()),
        "bootstrap": (torch.float32, ()),
        "next_bar": (torch.int32, ()),
        "next_portfolio": (torch.float32, (N_PORTFOLIO,)),
        "version": (torch.int32, ()),
        "priority": (torch.int64, ()),
    }
    if stack_size > 1:
        for prefix in ("", "next_"):
            columns[f"{prefix}history"] = torch.float32, (stack_size - 1, N_PORTFOLIO)
            columns[f"{prefix}age"] = torch.uint8, ()  # steps before, <= stack - 1
    return columns


def row_bytes(stack_size: int) -> int:
    """Return the bytes of a row."""
    return sum(kind.itemsize * prod(shape) for kind, shape in row_columns(stack_size).values())


class Replay:
    """Ring buffer of transitions on one device.

    Columns per row: bar, portfolio before, action, n-step return, bootstrap factor, next bar,
    portfolio after, policy version (the round that collected it), priority; with a stack also the
    portfolios of the steps before and how many of them the episode has.
    """

    def __init__(
        self,
        capacity: int,
        bar_part: Floats,
        first_bar: int,
        device: str = "cpu",
        *,
        alpha: float = 0.6,
        prioritised: bool = True,
        scale: float = 1.0,
        stack_size: int = 1,
        context: Context | None = None,
    ) -> None:
        """Allocate an empty ring.

        Args:
            capacity: rows kept.
            bar_part: float32[n, 115], the bars the trainer may read.
            first_bar: global index of its row 0.
            device: torch device of all columns.
            alpha: exponent of priorities; 0 is uniform.
            prioritised: False draws uniformly and ignores priorities.
            scale: the error of priority 1, reward units.
            stack_size: steps in a state, the current one included.
            context: gives the columns of a state behind its 128 slots, from slots of the bar
                alone; kept for all bars when they fit `TABLE_BYTES`, else computed when drawn.
        """
        # states whose portfolio slots are filled in when drawn
        empty = np.zeros((len(bar_part), N_PORTFOLIO), np.float32)
        self.states = torch.from_numpy(assemble(bar_part, empty)).to(device)
        self._context = context
        if context is not None:
            self._keep(context)
        self.first_bar, self.stack_size = first_bar, stack_size
        self._back = torch.arange(stack_size, device=device)
        self._slots = torch.tensor(PORTFOLIO_SLOTS, device=device)
        self.alpha, self.prioritised, self.scale = alpha, prioritised, scale
        self.capacity, self.size, self.cursor = capacity, 0, 0

        self.columns = {
            name: torch.zeros(capacity, *shape, dtype=kind, device=device)
            for name, (kind, shape) in row_columns(stack_size).items()
        }
        self.top_priority = torch.tensor(PRIORITY_ONE, device=device)

    def _keep(self, context: Context) -> None:
        """Put the contexts of all bars behind their slots, if they are not too many."""
        width = context(self.states[:1]).shape[1]
        if len(self.states) * width * self.states.element_size() > TABLE_BYTES:
            return
        starts = range(0, len(self.states), _ROWS)
        parts = [context(self.states[first : first + _ROWS]) for first in starts]
        self.states, self._context = torch.cat([self.states, torch.cat(parts)], dim=1), None

    def insert(self, experience: Experience, n: int, gamma: float, version: int) -> int:
        """Append all decisions with their n-step returns; the oldest rows give way.

        New rows get the highest priority seen so far. Rows are laid out step by step. Everything is
        computed on the replay's device; only the number of rows comes back.

        Args:
            experience: checked experience on bars of this replay, on the host or the device.
            n: steps of the return; fewer near the end of an episode.
            gamma: discount per step.
            version: the round that collected it.

        Returns:
            The number of rows appended.
        """
        device = self.states.device
        future = n_step(experience, n, gamma, device)
        start, portfolio = tensor(experience.start, device), tensor(experience.portfolio, device)
        alive = tensor(experience.end, device) != End.DEAD
        step, episode = (place[-self.capacity :] for place in alive.nonzero(as_tuple=True))
        after = step + future.steps[step, episode]
        bar = start[episode]
        rows = {
            "bar": bar + step,
            "portfolio": portfolio[step, episode],
            "action": tensor(experience.action, device)[step, episode],
            "returns": future.value[step, episode],
            "bootstrap": future.bootstrap[step, episode],
            "next_bar": bar + after,
            "next_portfolio": portfolio[after, episode],
            "version": torch.full_like(step, version),
            "priority": self.top_priority.expand(len(step)),
        }
        if self.stack_size > 1:
            rows |= self._past(portfolio, step, episode, "")
            rows |= self._past(portfolio, after, episode, "next_")
        room = self.capacity - self.cursor
        for name, values in rows.items():
            column = self.columns[name]
            column[self.cursor : self.cursor + len(step)] = values[:room]
            column[: max(len(step) - room, 0)] = values[room:]
        self.cursor = (self.cursor + len(step)) % self.capacity
        self.size = min(self.size + len(step), self.capacity)
        return len(step)

    def _past(
        self, portfolio: Tensor, step: Tensor, episode: Tensor, prefix: str
    ) -> dict[str, Tensor]:
        """Return the portfolios before `step` [M], newest first, and how many there are."""
        back = (step[:, None] - self._back[1:]).clamp(min=0)
        return {
            f"{prefix}history": portfolio[back, episode[:, None]],
            f"{prefix}age": step.clamp(max=self.stack_size - 1),
        }

    def sample(self, uniform: Tensor, beta: float) -> Drawn:
        """Draw several minibatches at once, stratified within each (Schaul 2016).

        Nothing here waits for the device.

        Args:
            uniform: float64[K, B] in [0, 1), one number for each row to draw; the K minibatches
                are drawn from the priorities as they stand now.
            beta: exponent of the importance weights.
        """
        if self.size == 0:
            raise ValueError("the replay is empty; insert experience before drawing from it")
        batch = uniform.shape[1]
        if not self.prioritised:
            return Drawn((uniform * self.size).long(), torch.ones_like(uniform).float())
        strata = (torch.arange(batch, device=uniform.device) + uniform) / batch
        priority = self.columns["priority"][: self.size]
        edges = priority.cumsum(0)
        total = edges[-1]
        target = (strata * total).long().minimum(total - 1)
        row = torch.searchsorted(edges, target, right=True)
        chance = priority[row].double() / total
        weight = (self.size * chance) ** -beta
        weight /= weight.amax(1, keepdim=True)
        return Drawn(row, weight.float())

    def batch(self, row: Tensor, weight: Tensor) -> Batch:
        """Return the minibatch of the rows at places int64[B], with weights [B]."""

        def take(name: str) -> Tensor:
            return self.columns[name].index_select(0, row)

        return Batch(
            state=self._state(row),
            action=take("action").long(),
            returns=take("returns"),
            bootstrap=take("bootstrap"),
            next_state=self._state(row, "next_"),
            weight=weight,
        )

    def take(self, row: Tensor) -> Batch:
        """Return the rows at places int64[B], with equal weights."""
        return self.batch(row, torch.ones(len(row), device=row.device))

    def _state(self, places: Tensor, prefix: str = "") -> Tensor:
        """Return the states [M, ...] of rows `places` [M], before the step or ("next_") after."""

        def take(name: str) -> Tensor:
            return self.columns[prefix + name].index_select(0, places)

        bars, held = take("bar") - self.first_bar, take("portfolio")
        if self.stack_size == 1:
            return self._states(bars, held)
        lived = self._back <= take("age")[:, None]
        bars = (bars[:, None] - self._back).clamp(min=0)
        held = torch.cat([held[:, None], take("history")], dim=1)
        states = self._states(bars.view(-1), held.flatten(0, 1))
        return _folded(states, lived).masked_fill_(~lived[..., None], 0.0)

    def _states(self, bars: Tensor, held: Tensor) -> Tensor:
        """Return the states [M, width] of rows of the bar table [M] and portfolios [M, 13]."""
        states = self.states.index_select(0, bars).index_copy_(1, self._slots, held)
        if self._context is None:
            return states
        return torch.cat([states, self._context(states)], dim=1)

    def newest(self, count: int, among: int) -> Tensor:
        """Return `count` states [count, ...] spread evenly over the newest `among` rows."""
        among = min(among, self.size)
        back = torch.arange(count, device=self.states.device) * among // count
        return self._state((self.cursor - 1 - back) % self.capacity)

    def set_priority(self, row: Tensor, error: Tensor) -> None:
        """Set priorities (error/scale + floor)^alpha; a row drawn twice keeps its larger one.

        Args:
            row: int64[...], places in the replay.
            error: [...], >= 0, reward units: the sum over branches of |td|.
        """
        if not self.prioritised:
            return
        relative = error.double() / self.scale + PRIORITY_FLOOR
        fixed = (relative**self.alpha * PRIORITY_ONE).clamp(max=PRIORITY_LIMIT).long()
        fixed = fixed.clamp_(min=1).view(-1)  # as an integer, so that NaN is a priority too
        column, row = self.columns["priority"], row.view(-1)
        # a maximum does not depend on the order of its writes
        column.index_fill_(0, row, 0)
        column.scatter_reduce_(0, row, fixed, "amax")
        self.top_priority.copy_(torch.maximum(self.top_priority, fixed.max()))

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of the filled rows and the ring's position, for `restore`."""
        kept = {k: v[: self.size].cpu().numpy().copy() for k, v in self.columns.items()}
        position = np.array([self.size, self.cursor, int(self.top_priority)], np.int64)
        return kept | {"position": position, "scale": np.array(self.scale)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` of a replay of the same capacity returned."""
        self.size, self.cursor, top = (int(i) for i in state["position"])
        self.top_priority.fill_(top)
        self.scale = float(state["scale"])
        for name, column in self.columns.items():
            column[: self.size] = torch.from_numpy(state[name]).to(column.device)


def _folded(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows [M, ...] as [*like.shape, ...]."""
    return rows.view(*like.shape, *rows.shape[1:])
