"""Replay of bar indices: a ring of transitions, drawn in proportion to priority or uniformly.

Priorities are integers (fixed point), so their running sum is exact and a draw is the same on
every device. Observations are gathered from the bar table when drawn, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from backtest.agent.experience import Experience, n_step
from backtest.market.layout import N_BRANCHES, N_PORTFOLIO

PRIORITY_ONE = 2**30  # fixed point of a priority; 2^22 rows of 2^10 times that still fit 62 bits
PRIORITY_LIMIT = 2**40
PRIORITY_FLOOR = 1e-6  # in units of `scale`: a perfectly predicted row can still be drawn


@dataclass(frozen=True)
class Batch:
    """K minibatches of B rows, ready for the networks; all tensors have leading [K, B]."""

    bar_part: Tensor  # [K, B, 115]
    portfolio: Tensor  # [K, B, 13]
    action: Tensor  # int64[K, B, 4]
    returns: Tensor  # [K, B], n-step return
    bootstrap: Tensor  # [K, B], gamma^k, 0 after TERMINATED
    next_bar_part: Tensor
    next_portfolio: Tensor
    weight: Tensor  # [K, B], importance weights, maximum 1 in each minibatch
    row: Tensor  # int64[K, B], place in the replay

    def minibatch(self, k: int) -> Batch:
        """Return minibatch k, tensors [B, ...]."""
        return Batch(**{f.name: getattr(self, f.name)[k] for f in fields(self)})


class Replay:
    """Ring buffer of transitions on one device.

    Columns per row: bar, portfolio before, action, n-step return, bootstrap factor, next bar,
    portfolio after, policy version (the round that collected it), priority.
    """

    def __init__(
        self,
        capacity: int,
        bar_part: Tensor,
        first_bar: int,
        *,
        alpha: float = 0.6,
        prioritised: bool = True,
        scale: float = 1.0,
    ) -> None:
        """Allocate an empty ring.

        Args:
            capacity: rows kept.
            bar_part: float32[n, 115], the bars the trainer may read; fixes the device.
            first_bar: global index of its row 0.
            alpha: exponent of priorities; 0 is uniform.
            prioritised: False draws uniformly and ignores priorities.
            scale: the error of priority 1, reward units.
        """
        self.bar_part, self.first_bar = bar_part, first_bar
        self.alpha, self.prioritised, self.scale = alpha, prioritised, scale
        self.capacity, self.size, self.cursor = capacity, 0, 0

        def column(kind: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(capacity, *shape, dtype=kind, device=bar_part.device)

        self.columns = {
            "bar": column(torch.int32),
            "portfolio": column(torch.float32, N_PORTFOLIO),
            "action": column(torch.uint8, N_BRANCHES),
            "returns": column(torch.float32),
            "bootstrap": column(torch.float32),
            "next_bar": column(torch.int32),
            "next_portfolio": column(torch.float32, N_PORTFOLIO),
            "version": column(torch.int32),
            "priority": column(torch.int64),
        }
        self.top_priority = torch.tensor(PRIORITY_ONE, device=bar_part.device)

    def insert(self, experience: Experience, n: int, gamma: float, version: int) -> int:
        """Append all decisions with their n-step returns; the oldest rows give way.

        New rows get the highest priority seen so far. Rows are laid out step by step.

        Args:
            experience: checked experience on bars of this replay.
            n: steps of the return; fewer near the end of an episode.
            gamma: discount per step.
            version: the round that collected it.

        Returns:
            The number of rows appended.
        """
        future = n_step(experience, n, gamma)
        step, episode = np.nonzero(experience.alive)
        step, episode = step[-self.capacity :], episode[-self.capacity :]
        after = step + future.steps[step, episode]
        start = experience.start[episode]
        rows = {
            "bar": start + step.astype(np.int32),
            "portfolio": experience.portfolio[step, episode],
            "action": experience.action[step, episode],
            "returns": future.value[step, episode],
            "bootstrap": future.bootstrap[step, episode],
            "next_bar": start + after.astype(np.int32),
            "next_portfolio": experience.portfolio[after, episode],
            "version": np.full(len(step), version, np.int32),
        }
        device = self.bar_part.device
        place = (torch.arange(len(step), device=device) + self.cursor) % self.capacity
        for name, values in rows.items():
            self.columns[name][place] = torch.from_numpy(np.ascontiguousarray(values)).to(device)
        self.columns["priority"][place] = self.top_priority
        self.cursor = (self.cursor + len(step)) % self.capacity
        self.size = min(self.size + len(step), self.capacity)
        return len(step)

    def sample(self, minibatches: int, batch: int, beta: float, rng: np.random.Generator) -> Batch:
        """Draw several minibatches at once, stratified within each (Schaul 2016).

        Args:
            minibatches: K, drawn from the priorities as they stand now.
            batch: B, rows of each.
            beta: exponent of the importance weights.
            rng: source of K*B uniform numbers.
        """
        if self.size == 0:
            raise ValueError("the replay is empty; insert experience before drawing from it")
        device = self.bar_part.device
        draws = rng.random((minibatches, batch))
        if not self.prioritised:
            row = torch.from_numpy((draws * self.size).astype(np.int64)).to(device)
            return self._gather(row, torch.ones(minibatches, batch, device=device))
        strata = torch.from_numpy((np.arange(batch) + draws) / batch).to(device)
        priority = self.columns["priority"][: self.size]
        edges = priority.cumsum(0)
        total = edges[-1]
        target = (strata * total).long().minimum(total - 1)
        row = torch.searchsorted(edges, target, right=True)
        chance = priority[row].double() / total
        weight = (self.size * chance) ** -beta
        weight /= weight.amax(1, keepdim=True)
        return self._gather(row, weight.float())

    def _gather(self, row: Tensor, weight: Tensor) -> Batch:
        """Return the batch of these rows [K, B]."""
        places = row.view(-1)

        def take(table: Tensor, rows: Tensor) -> Tensor:
            # several times faster on a CPU than indexing by a [K, B] tensor
            return table.index_select(0, rows).view(*row.shape, *table.shape[1:])

        def bars(name: str) -> Tensor:
            bar = self.columns[name].index_select(0, places)
            return take(self.bar_part, bar - self.first_bar)

        return Batch(
            bar_part=bars("bar"),
            portfolio=take(self.columns["portfolio"], places),
            action=take(self.columns["action"], places).long(),
            returns=take(self.columns["returns"], places),
            bootstrap=take(self.columns["bootstrap"], places),
            next_bar_part=bars("next_bar"),
            next_portfolio=take(self.columns["next_portfolio"], places),
            weight=weight,
            row=row,
        )

    def newest(self, count: int, among: int) -> tuple[Tensor, Tensor]:
        """Return bar part and portfolio of `count` states spread evenly over the newest `among`."""
        among = min(among, self.size)
        back = torch.arange(count, device=self.bar_part.device) * among // count
        row = (self.cursor - 1 - back) % self.capacity
        bar = self.columns["bar"][row] - self.first_bar
        return self.bar_part[bar], self.columns["portfolio"][row]

    def set_priority(self, row: Tensor, error: Tensor) -> None:
        """Set priorities (error/scale + floor)^alpha; a row drawn twice keeps its larger one.

        Args:
            row: int64[...], places in the replay.
            error: [...], >= 0, reward units: the sum over branches of |td|.
        """
        if not self.prioritised:
            return
        relative = error.double() / self.scale + PRIORITY_FLOOR
        fixed = (relative**self.alpha * PRIORITY_ONE).clamp(1, PRIORITY_LIMIT).long().view(-1)
        column, row = self.columns["priority"], row.view(-1)
        # a maximum does not depend on the order of its writes
        column[row] = 0
        column.scatter_reduce_(0, row, fixed, "amax")
        self.top_priority = torch.maximum(self.top_priority, fixed.max())

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
