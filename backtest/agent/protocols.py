"""What the learner needs from the market: experience for weights, and a score for weights.

Implemented by NumPy and by the device layer; both are bound to fold, seed, window, environments,
steps and branches before the learner sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from backtest.agent.experience import Experience
from backtest.agent.kinds import Weights

WindowName = Literal["train", "validation"]


@dataclass(frozen=True)
class Score:
    """Outcome of the greedy policy on one window."""

    sharpe: float | None  # annual; None where undefined
    pnl: float  # currency, net
    returns: npt.NDArray[np.float64]  # net return of each session of the window
    trades: int | None = None  # closed trades; None: not counted, nor what follows
    wins: int | None = None  # of them with a gain
    actions: tuple[int, ...] = ()  # how often each of the 13 values was taken


class Collector(Protocol):
    """Plays epsilon-greedy episodes on the train window."""

    def collect(self, weights: Weights, round: int, epsilon: float) -> Experience:
        """Return one round's experience; the same arguments give the same experience."""
        ...


class Evaluator(Protocol):
    """Plays the greedy policy once through a window."""

    def evaluate(self, weights: Weights, window_name: WindowName) -> Score:
        """Return the score on the train or validation window; never on test."""
        ...
