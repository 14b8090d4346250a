"""Collector and evaluator on a device: what `backtest.agent.train_fold` plays with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.aux_verdict import action_counts
from backtest.agent.experience import Experience
from backtest.agent.kinds import Weights
from backtest.agent.protocols import Score, WindowName
from backtest.evaluation.metrics import daily_returns
from backtest.evaluation.ratios import sharpe
from backtest.market.layout import COMPONENTS, Array, End
from backtest.market.tape import Tape
from opencl.exchange import exchange
from opencl.rollout import PolicySkills, Rollout, Trajectories, Walked

# A long train window is scored in this many consecutive episodes, the lanes of one work-item.
SEGMENTS = 16
LEAST_SEGMENT, MOST_SEGMENT = 256, 2048  # steps


@dataclass(frozen=True)
class DeviceCollector:
    """Epsilon-greedy episodes from random bars of the train window.

    Attributes:
        rollout: holds the train rows and nothing else.
        key: uint32[2], of seed, instrument and fold.
        envs: episodes a round.
        steps: steps an episode; fewer when the window is shorter.
        learner: torch device that the experience is for; of `torch_device`, or "cpu".
    """

    rollout: Rollout
    key: Array
    envs: int
    steps: int
    learner: str = "cpu"

    def collect(self, weights: Weights, round: int, epsilon: float) -> Experience:
        """Return one round's experience; see `backtest.agent.protocols.Collector`.

        Only the first round, which becomes a file, carries the reward components. The memory
        becomes a later round's when the experience and all views of it are gone.
        """
        tape = self.rollout.tape
        # the last decision of a window is taken at stop - 2
        steps = min(self.steps, len(tape.bars) - 1)
        room = len(tape.bars) - steps
        u = rng.uniform(self.key, rng.Stage.START, round, np.arange(self.envs), 0, 0)
        start = tape.start + (u.astype(np.float64) * room).astype(np.int64)
        launch = self.rollout.launch(
            [weights],
            start[None],
            steps,
            self.key[None],
            stage_round=int(rng.stream(rng.Stage.COLLECT, round)),
            epsilon=epsilon,
            portfolio=True,
            trace=round == 0,
            to=exchange(self.rollout.device, self.learner),
        )
        return experience(launch.read())


def experience(out: Walked[Any]) -> Experience:
    """Return trajectories with portfolio states as the learner's experience, without a copy.

    A trace adds the reward components, NumPy's; the learner does not need them.
    """
    assert out.portfolio is not None
    components = None
    if out.trace is not None:
        components = np.stack([out.trace[name] for name in COMPONENTS], axis=-1)
    return Experience(
        start=out.start,
        action=out.action,
        reward=out.reward,
        end=out.end,
        portfolio=out.portfolio,
        components=components,
        equity=out.equity,
    )


@dataclass(frozen=True)
class DeviceEvaluator:
    """The greedy policy through the train or the validation window.

    Attributes:
        rollouts: by window; each holds the rows of its window only.
        session: int32[n] by window, session date of each bar on the tape.
        key: uint32[2]; greedy play draws nothing, the kernel wants one.
        sessions_per_year: of the instrument's calendar.
        trades: count trades and actions of the validation window, for the aux verdict.
    """

    rollouts: dict[WindowName, Rollout]
    session: dict[WindowName, Array]
    key: Array
    sessions_per_year: float
    trades: bool = False

    def evaluate(self, weights: Weights, window_name: WindowName) -> Score:
        """Return the score of one window; see `backtest.agent.protocols.Evaluator`.

        A long train window is cut into `segments`, each from flat and the initial capital; fewer
        bars at its end than there are segments are left out.
        """
        rollout = self.rollouts[window_name]
        parts = segments(len(rollout.tape.bars) - 1) if window_name == "train" else 1
        steps = (len(rollout.tape.bars) - 1) // parts
        start = rollout.tape.start + np.arange(parts) * steps
        counting = self.trades and window_name == "validation"
        out = greedy(rollout, [weights], start[None], steps, self.key[None], trace=counting)
        return self.score(window_name, rollout.tape, start, out)

    def score(self, window_name: WindowName, tape: Tape, start: Array, out: Trajectories) -> Score:
        """Return the score of what was played.

        Args:
            window_name: of the window.
            tape: of the window.
            start: int[n], first bars of its episodes, of equal length and one behind the other.
            out: the episodes, with a trace where trades are counted.
        """
        steps = len(out.equity)
        capital = float(tape.params["initial_capital"])
        gained = np.diff(out.equity.astype(np.float64), axis=0, prepend=capital)
        earned = np.where(out.end == End.DEAD, 0.0, gained).T.ravel()
        rows = (start[:, None] + np.arange(1, steps + 1) - tape.start).ravel()
        returns, _ = daily_returns(self.session[window_name][rows], earned, capital)
        score = Score(sharpe(returns, self.sessions_per_year), float(earned.sum()), returns)
        return score if out.trace is None else with_trades(score, out.action, out.trace)


def segments(bars: int) -> int:
    """Return how many consecutive episodes score a train window.

    Whole work-items of a CPU; where they would get long, more, for they are walked side by side.
    """
    if bars < SEGMENTS * LEAST_SEGMENT:
        return 1
    return SEGMENTS * max(1, bars // (SEGMENTS * MOST_SEGMENT))


def with_trades(score: Score, action: Array, trace: Array) -> Score:
    """Return a score with closed trades, those with a gain, and the actions counted.

    Args:
        score: without them.
        action: integers [steps, n, 4].
        trace: `StepResult` records [steps, n].
    """
    return replace(
        score,
        trades=int(trace["segment_complete"].sum()),
        # a ruin closes its trade at a loss
        wins=int((trace["trade_result"] > 0).sum()),
        actions=tuple(action_counts(action, trace["end"]).tolist()),
    )


def greedy(
    rollout: Rollout,
    policies: Sequence[Weights],
    start: Array,
    steps: int | Array,
    keys: Array,
    *,
    base: Array | None = None,
    portfolio: bool = False,
    trace: bool = False,
    skills: Sequence[PolicySkills | None] | None = None,
    slots: bool = False,
) -> Trajectories:
    """Play policies without exploration; arguments as for `Rollout.launch`."""
    stage_round = int(rng.stream(rng.Stage.VALIDATE, 0))
    return rollout.run(
        policies,
        start,
        steps,
        keys,
        stage_round=stage_round,
        base=base,
        portfolio=portfolio,
        trace=trace,
        skills=skills,
        slots=slots,
    )
