"""What one collection round leaves: steps of N episodes side by side, indexed by bar.

Observations are not stored: the bar index and the 13 portfolio floats give them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.agent.columns import Column, host, tensor
from backtest.errors import DataError
from backtest.market.layout import BRANCHES, COMPONENTS, N_BRANCHES, N_COMPONENTS, N_PORTFOLIO, End

if TYPE_CHECKING:
    import pyarrow as pa


class Facts(NamedTuple):
    """What the checks need of an experience, in one reading of the device."""

    contradictory: bool  # rows after an end that are not DEAD, or DEAD rows before one
    broken: bool  # a decision with a reward or portfolio value that is not finite
    first_bar: int  # lowest bar of a decision
    last_bar: int  # highest
    steps: int  # number of decisions


@dataclass(frozen=True)
class Experience:
    """T steps of N episodes; step t of episode e decides at bar `start[e] + t`.

    Each column is a NumPy array, or a tensor on the learner's device. Rows after an end are
    `End.DEAD`; their other columns mean nothing. An episode still running in the last row continues
    beyond it: the learner bootstraps there.
    """

    start: Column  # int32[N], bar of t = 0
    action: Column  # uint8[T, N, 4]
    reward: Column  # float32[T, N]
    end: Column  # uint8[T, N], layout.End
    portfolio: Column  # float32[T+1, N, 13]: row t before step t, row t+1 after it; any strides
    components: Column | None  # float32[T, N, 10], unweighted, or None when not collected
    equity: Column  # float32[T, N], currency, at the close of bar start + t + 1
    facts: Facts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit each other or whose ends contradict themselves.

        Raises:
            DataError: names the array, or the episode and step.
        """
        steps, episodes = self.reward.shape
        shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            "start": ((episodes,), np.int32),
            "action": ((steps, episodes, N_BRANCHES), np.uint8),
            "reward": ((steps, episodes), np.float32),
            "end": ((steps, episodes), np.uint8),
            "portfolio": ((steps + 1, episodes, N_PORTFOLIO), np.float32),
            "components": ((steps, episodes, N_COMPONENTS), np.float32),
            "equity": ((steps, episodes), np.float32),
        }
        for name, (shape, kind) in shapes.items():
            array = getattr(self, name)
            if array is None and name == "components":
                continue
            found = str(array.dtype).removeprefix("torch.")
            if tuple(array.shape) != shape or found != np.dtype(kind).name:
                raise DataError(
                    f"experience.{name} is {found}{list(array.shape)}; the collector must "
                    f"return {np.dtype(kind)}{list(shape)}"
                )
        object.__setattr__(self, "facts", self._observe())
        if self.facts.contradictory:
            end = host(self.end)
            step, episode = np.argwhere((end != End.DEAD) == _ended_before(end))[0]
            raise DataError(
                f"experience.end[{step}, {episode}] = {end[step, episode]}: rows after an end "
                "must be DEAD, and only those; fix the collector"
            )

    def _observe(self) -> Facts:
        """Return the facts; computed where the columns are, the only wait for that device."""
        import torch

        end = tensor(self.end)
        reward, portfolio = tensor(self.reward, end.device), tensor(self.portfolio, end.device)
        start = tensor(self.start, end.device)
        alive = end != End.DEAD
        # a row is dead exactly when the row before it ended or was dead
        ended = torch.zeros_like(alive)
        ended[1:] = end[:-1] != End.RUNNING
        held = portfolio.sum(2).isfinite()  # a sum is finite only when all terms are
        finite = reward.isfinite() & held[:-1] & held[1:]
        lengths = alive.sum(0)
        facts = [
            (alive == ended).any(),
            (alive & ~finite).any(),
            start.min(),
            (start + lengths).max() - 1,
            lengths.sum(),
        ]
        contradictory, broken, *numbers = torch.stack([f.long() for f in facts]).tolist()
        return Facts(bool(contradictory), bool(broken), *numbers)

    @property
    def alive(self) -> Column:
        """bool[T, N], rows that hold a decision."""
        return self.end != End.DEAD

    @property
    def steps(self) -> int:
        """Number of decisions."""
        return self.facts.steps

    def bars(self) -> npt.NDArray[np.int32]:
        """Return [T, N], the bar of each decision, on the host."""
        start: npt.NDArray[np.int32] = host(self.start)
        return start + np.arange(len(self.reward), dtype=np.int32)[:, None]

    def check(self, first_bar: int, stop_bar: int) -> None:
        """Refuse what must never reach a replay: foreign bars and non-finite numbers.

        Args:
            first_bar: first bar the trainer may read.
            stop_bar: one past the last; the state after a step counts as read.

        Raises:
            DataError: names episode, step and bar.
        """
        facts = self.facts
        if not facts.broken and first_bar <= facts.first_bar and facts.last_bar + 1 < stop_bar:
            return
        alive, bars = host(self.alive), self.bars()
        foreign = alive & ((bars < first_bar) | (bars + 1 >= stop_bar))
        held = np.isfinite(host(self.portfolio).sum(axis=2))
        finite = np.isfinite(host(self.reward)) & held[:-1] & held[1:]
        _refuse(foreign, bars, f"leaves the train rows [{first_bar}, {stop_bar})")
        _refuse(alive & ~finite, bars, "has a reward or portfolio value that is not finite")

    def to_table(self, first_episode: int = 0) -> pa.Table:
        """Return the decisions as a table, episode by episode in time order.

        Columns: episode, t, bar, the four branches, reward, the reward components where collected,
        end, equity (currency) and position (fraction of max_position), both at bar + 1.
        """
        import pyarrow as pa

        keep = host(self.alive).T
        steps, episodes = self.reward.shape

        def column(values: Column) -> npt.NDArray[np.generic]:
            kept: npt.NDArray[np.generic] = host(values).T[keep]
            return kept

        episode = np.arange(first_episode, first_episode + episodes, dtype=np.int32)
        data = {
            "episode": column(np.broadcast_to(episode, (steps, episodes))),
            "t": column(
                np.broadcast_to(np.arange(steps, dtype=np.int32)[:, None], (steps, episodes))
            ),
            "bar": column(self.bars()),
        }
        data |= {name: column(self.action[:, :, i]) for i, name in enumerate(BRANCHES)}
        data["reward"] = column(self.reward)
        if self.components is not None:
            data |= {name: column(self.components[:, :, i]) for i, name in enumerate(COMPONENTS)}
        data["end"] = column(self.end)
        data["equity"] = column(self.equity)
        data["position"] = column(self.portfolio[1:, :, 0])
        return pa.table(data)


def _refuse(bad: npt.NDArray[np.bool_], bars: npt.NDArray[np.int32], what: str) -> None:
    """Raise a DataError that names the first bad step, if there is one."""
    if not bad.any():
        return
    step, episode = np.argwhere(bad)[0]
    raise DataError(
        f"experience: step {step} of episode {episode} (bar {bars[step, episode]}) {what}; look at "
        "the bars and costs around it"
    )


def _ended_before(end: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return [T, N], rows whose row before ended or was dead."""
    after = np.zeros(end.shape, np.bool_)
    after[1:] = end[:-1] != End.RUNNING
    return after
