"""Seeds that train side by side: their validation windows are played in one launch.

A validation window is one walk from its first bar to its last, however many bars it has, so on a
GPU one seed's walk takes as long as those of all seeds together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from backtest.agent.kinds import Weights
from backtest.agent.protocols import Score
from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.collector import DeviceEvaluator, greedy
from opencl.devices import Device
from opencl.rollout import Rollout, Shape, Trajectories, Windows


class JointEvaluator:
    """Plays the validation windows of several runs; scores are those of each run's evaluator."""

    def __init__(
        self,
        device: Device,
        shape: Shape,
        evaluators: Sequence[DeviceEvaluator],
        validation: Sequence[tuple[Tape, Array]],
    ) -> None:
        """Put all validation rows on the device, once where runs share them.

        Args:
            device: of the evaluators.
            shape: the networks'.
            evaluators: of each run; they need no rollout of the validation window.
            validation: its validation tape and states float32[n, 115].
        """
        self.evaluators, self.tapes = evaluators, [tape for tape, _ in validation]
        places: dict[int, int] = {}
        self.window_of = [places.setdefault(id(state), len(places)) for _, state in validation]
        first = [self.window_of.index(i) for i in range(len(places))]
        self.windows = Windows.joined([validation[i] for i in first])
        self.rollout = Rollout(device, self.windows.tape, self.windows.states, shape)

    def evaluate(self, asked: Mapping[int, Weights]) -> dict[int, tuple[Score, Score]]:
        """Return the scores of the train and the validation window, by the run's place."""
        runs, windows = list(asked), self.windows
        at = np.array([self.window_of[i] for i in runs])
        out = greedy(
            self.rollout,
            list(asked.values()),
            windows.first[at, None],
            windows.steps[at],
            np.stack([self.evaluators[i].key for i in runs]),
            base=windows.base[at],
            trace=any(self.evaluators[i].trades for i in runs),
        )
        return {i: self._scores(i, asked[i], out, place) for place, i in enumerate(runs)}

    def _scores(
        self, run: int, weights: Weights, out: Trajectories, place: int
    ) -> tuple[Score, Score]:
        """Return the scores of one run, whose validation window is one episode of a launch."""
        evaluator = self.evaluators[run]
        steps, mine = int(self.windows.steps[self.window_of[run]]), slice(place, place + 1)
        counted = out.trace is not None and evaluator.trades
        own = replace(
            out,
            action=out.action[:steps, mine],
            reward=out.reward[:steps, mine],
            equity=out.equity[:steps, mine],
            end=out.end[:steps, mine],
            trace=out.trace[:steps, mine] if counted and out.trace is not None else None,
        )
        tape = self.tapes[run]
        found = evaluator.score("validation", tape, np.array([tape.start]), own)
        return evaluator.evaluate(weights, "train"), found
