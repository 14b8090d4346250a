"""What training returns, and the two ways it can end without a result. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from backtest.agent.kinds import Weights, export_weights
from backtest.agent.protocols import Score
from backtest.agent.weights import Floats
from backtest.config import Network
from backtest.errors import BacktestError

Curve = dict[str, float | None]  # one epoch


@dataclass(frozen=True)
class Checkpoint:
    """The policy after one epoch, with its scores."""

    state: dict[str, Floats]  # the network's parameters by name
    network: Network  # its kind and sizes
    v_max: float  # reward units; v_min = -v_max
    epoch: int
    update: int  # updates done
    validation: Score
    train: Score

    @property
    def weights(self) -> Weights:
        """The kernel's view of it."""
        return export_weights(self.state, self.network, self.v_max)


@dataclass(frozen=True)
class Trained:
    """The best checkpoint by validation Sharpe, and what the run spent."""

    best: Checkpoint
    weights: Weights
    curves: list[Curve]  # one row per epoch, in order
    v_max: float  # of the best checkpoint
    edge_mass: float  # mean target mass on the two edge atoms, last epoch
    range_failed: bool  # edge mass above the limit again after widening (or with a given v_max)
    steps: int  # decisions collected
    updates: int  # gradient steps taken
    # of the bypass after the last update, not of the best epoch: weights and Adam's two moments,
    # float32[3, 4]; None without it
    bypass: Floats | None = None

    @property
    def state_dict(self) -> dict[str, Floats]:
        """The network's parameters by name, on the host."""
        return self.best.state

    @property
    def best_epoch(self) -> int:
        """Epoch of the best checkpoint, from 0."""
        return self.best.epoch

    @property
    def v_min(self) -> float:
        """Lower end of the support, reward units."""
        return -self.v_max


class DivergenceError(BacktestError):
    """Loss or gradient became non-finite; `trained` is the last good checkpoint, if there is one.

    Its weights are those of the best epoch before the failure.
    """

    # the default lets a worker process send the error back
    def __init__(self, message: str, trained: Trained | None = None) -> None:
        super().__init__(message)
        self.trained = trained


class StoppedError(BacktestError):
    """The plan's stop flag was raised; the message says where the run resumes."""
