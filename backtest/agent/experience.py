"""What one collection round leaves: steps of N episodes side by side, indexed by bar.

Observations are not stored: the bar index and the 13 portfolio floats give them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from backtest.errors import DataError
from backtest.market.layout import BRANCHES, COMPONENTS, N_BRANCHES, N_COMPONENTS, N_PORTFOLIO, End

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Experience:
    """T steps of N episodes; step t of episode e decides at bar `start[e] + t`.

    Rows after an end are `End.DEAD`; their other columns mean nothing. An episode still running
    in the last row continues beyond it: the learner bootstraps there.
    """

    start: npt.NDArray[np.int32]  # [N], bar of t = 0
    action: npt.NDArray[np.uint8]  # [T, N, 4]
    reward: Floats  # [T, N]
    end: npt.NDArray[np.uint8]  # [T, N], layout.End
    portfolio: Floats  # [T+1, N, 13]: row t before step t, row t+1 after it
    components: Floats | None  # [T, N, 10], unweighted, or None when not collected
    equity: Floats  # [T, N], currency, at the close of bar start + t + 1

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
            if array.shape != shape or array.dtype != kind:
                raise DataError(
                    f"experience.{name} is {array.dtype}{list(array.shape)}; the collector must "
                    f"return {np.dtype(kind)}{list(shape)}"
                )
        # a row is dead exactly when the row before it ended or was dead
        dead = ~self.alive
        after = np.zeros_like(dead)
        after[1:] = self.end[:-1] != End.RUNNING
        if (dead != after).any():
            step, episode = np.argwhere(dead != after)[0]
            raise DataError(
                f"experience.end[{step}, {episode}] = {self.end[step, episode]}: rows after an end "
                "must be DEAD, and only those; fix the collector"
            )

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """[T, N], rows that hold a decision."""
        return np.not_equal(self.end, End.DEAD)

    @property
    def steps(self) -> int:
        """Number of decisions."""
        return int(self.alive.sum())

    def bars(self) -> npt.NDArray[np.int32]:
        """Return [T, N], the bar of each decision."""
        return self.start + np.arange(len(self.reward), dtype=np.int32)[:, None]

    def check(self, first_bar: int, stop_bar: int) -> None:
        """Refuse what must never reach a replay: foreign bars and non-finite numbers.

        Args:
            first_bar: first bar the trainer may read.
            stop_bar: one past the last; the state after a step counts as read.

        Raises:
            DataError: names episode, step and bar.
        """
        alive, bars = self.alive, self.bars()
        foreign = alive & ((bars < first_bar) | (bars + 1 >= stop_bar))
        held = np.isfinite(self.portfolio.sum(axis=2))  # a sum is finite only when all terms are
        finite = np.isfinite(self.reward) & held[:-1] & held[1:]
        _refuse(foreign, bars, f"leaves the train rows [{first_bar}, {stop_bar})")
        _refuse(alive & ~finite, bars, "has a reward or portfolio value that is not finite")

    def to_table(self, first_episode: int = 0) -> pa.Table:
        """Return the decisions as a table, episode by episode in time order.

        Columns: episode, t, bar, the four branches, reward, the reward components where collected,
        end, equity (currency) and position (fraction of max_position), both at bar + 1.
        """
        import pyarrow as pa

        keep = self.alive.T
        steps, episodes = self.reward.shape

        def column(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return array.T[keep]

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


@dataclass(frozen=True)
class Returns:
    """n-step returns of each row of an experience, [T, N]; rows that are not alive hold zeros."""

    value: Floats  # sum of gamma^i * reward
    steps: npt.NDArray[np.int32]  # k, the steps summed: n, fewer near an end
    bootstrap: Floats  # gamma^k, 0 where the episode TERMINATED within


def n_step(experience: Experience, n: int, gamma: float) -> Returns:
    """Sum up to n rewards inside the episode; sums in float64 (Sutton 1988)."""
    horizon = len(experience.reward)
    value = np.zeros(experience.reward.shape)
    steps = np.zeros(experience.reward.shape, np.int32)
    terminated = np.zeros(experience.reward.shape, np.bool_)
    going = experience.alive
    for i in range(min(n, horizon)):
        rows = horizon - i  # rows t with t + i < horizon
        going = going[:rows]
        end = experience.end[i:]
        value[:rows] += np.where(going, gamma**i * experience.reward[i:].astype(np.float64), 0.0)
        steps[:rows] += going
        terminated[:rows] |= going & (end == End.TERMINATED)
        going = going & (end == End.RUNNING)
    discount = np.where(terminated | (steps == 0), 0.0, gamma**steps)
    return Returns(value.astype(np.float32), steps, discount.astype(np.float32))
