"""One update of a learner from rows of its replay: recorded once as a CUDA graph, then replayed.

A recorded update costs the host one launch, an eager one some two hundred. The graph holds what
is the same in every update: the gather of the minibatch, targets, loss, gradient, clipping, Adam.
Draws, priorities and moves of the target network stay outside; they come seldom, or differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backtest.agent.learner import C51Learner, Update
from backtest.agent.replay import Replay

# Updates before the recording: libraries load kernels, caches fill and Adam makes its moments, none
# of which a graph may hold.
WARM = 3


class UpdateGraph:
    """Updates a learner, by a graph where there can be one.

    The one rule: on a CUDA device, for minibatches of one size, after `WARM` updates; all else is
    eager. What a graph reads and writes stays in place as long as learner and replay live.
    """

    def __init__(self, learner: C51Learner, replay: Replay, batch: int) -> None:
        """Record nothing yet.

        Args:
            learner: on one device with the replay.
            replay: of experience.
            batch: rows of the minibatches to record for.
        """
        self.learner, self.replay, self.batch = learner, replay, batch
        self._device = replay.states.device
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def recorded(self) -> bool:
        """There is a graph."""
        return self._graph is not None

    def update(self, row: Tensor, weight: Tensor) -> Update:
        """Take one update from the rows at places int64[B], with weights float32[B].

        What it returns is overwritten by the next call.
        """
        if self._device.type != "cuda" or len(row) != self.batch:
            return self.learner.update(self.replay.batch(row, weight))
        if self._warm < WARM:
            self._warm += 1
            return self._on_the_side(row, weight)
        if self._graph is None:
            self._record(row, weight)
        assert self._graph is not None
        self._row.copy_(row)
        self._weight.copy_(weight)
        self._graph.replay()
        self.learner.advance()
        return self._update

    def _on_the_side(self, row: Tensor, weight: Tensor) -> Update:
        """Update on another stream, as recordings want their warm-up."""
        here = torch.cuda.current_stream(self._device)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            update = self.learner.update(self.replay.batch(row, weight))
        here.wait_stream(stream)
        return update

    def _record(self, row: Tensor, weight: Tensor) -> None:
        """Record a gradient step without taking it."""
        self._row, self._weight = row.clone(), weight.clone()
        graph = torch.cuda.CUDAGraph()
        # other threads may use the device meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._update = self.learner.step(self.replay.batch(self._row, self._weight))
        self._graph = graph
