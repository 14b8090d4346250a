"""Many updates one after another: rows are drawn in blocks, figures read in segments.

The host only launches: random numbers go up and figures come down once a segment, and the numbers
of the next are drawn while the device works on this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backtest.agent import streams
from backtest.agent.learner import C51Learner
from backtest.agent.replay import Replay
from backtest.agent.update_graph import UpdateGraph

# Minibatches drawn at once, so priorities are up to this many updates old: the running sum over the
# replay then costs little, and 25 refreshes still fall between two target copies.
BLOCK = 8
SEGMENT = 32 * BLOCK  # updates between two readings of figures


class Updates:
    """Takes the updates of one learner from one replay."""

    def __init__(
        self, learner: C51Learner, replay: Replay, seed: int, stream: int, stage: streams.Stage
    ) -> None:
        """Bind learner, replay and the random numbers of draws.

        Args:
            learner: its updates so far say where in the streams it is.
            replay: on the learner's device.
            seed: the run's.
            stream: of the fold.
            stage: what the draws are for.
        """
        self.learner, self.replay = learner, replay
        self._key = seed, stream, stage
        self._batch = learner.settings.batch
        self.graph = UpdateGraph(learner, replay, self._batch)

    def take(
        self, start: int, stop: int, beta: Callable[[int], float], before: Callable[[], None]
    ) -> Iterator[npt.NDArray[np.float32]]:
        """Take updates [start, stop); yield the figures of each segment, float32[updates, 4].

        Args:
            start: number of the first; blocks are counted from it.
            stop: one past the last.
            beta: exponent of the importance weights in the block that begins at an update.
            before: called before each block.
        """
        cuts = [*range(start, stop, SEGMENT), stop]
        uniform = self._draw(*cuts[:2]) if start < stop else None
        for i, (first, last) in enumerate(pairwise(cuts)):
            assert uniform is not None
            figures = torch.empty(last - first, 4, device=uniform.device)
            for block in range(first, last, BLOCK):
                before()
                rows = slice(block - first, block - first + BLOCK)
                self._block(uniform[rows], beta(block), figures[rows])
            uniform = self._draw(*cuts[i + 1 : i + 3]) if last < stop else None
            yield figures.cpu().numpy()  # waits for the device

    def _block(self, uniform: Tensor, beta: float, figures: Tensor) -> None:
        """Take one update for each row of uniform [K, B]; write its figures [K, 4]."""
        drawn = self.replay.sample(uniform, beta)
        error = torch.empty_like(drawn.weight)
        for k, (row, weight) in enumerate(zip(drawn.row, drawn.weight, strict=True)):
            update = self.graph.update(row, weight)
            figures[k], error[k] = update.figures, update.error
        self.replay.set_priority(drawn.row, error)

    def _draw(self, first: int, last: int) -> Tensor:
        """Return the uniform numbers float64[last - first, B] of a segment, on the device."""
        parts = [
            streams.generator(*self._key, block).random((min(BLOCK, last - block), self._batch))
            for block in range(first, last, BLOCK)
        ]
        uniform = torch.from_numpy(np.concatenate(parts))
        device = self.replay.states.device
        if device.type == "cuda":
            uniform = uniform.pin_memory()
        return uniform.to(device, non_blocking=True)
