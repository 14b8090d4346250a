"""A three-bar cyclic market with a position, small enough to solve by value iteration.

Context c = bar % 3 moves the price by MOVES[c]; a step earns position * move minus a cost per unit
traded, so the best action depends on the bar and on the portfolio.
"""

from dataclasses import dataclass, field

import numpy as np

from backtest.agent.actions import SPANS, greedy, learned
from backtest.agent.experience import Experience
from backtest.agent.kinds import forward
from backtest.agent.plan import Plan
from backtest.agent.protocols import Score
from backtest.agent.weights import N_BAR
from backtest.config import Learner, Network
from backtest.market.layout import Direction, End

FIRST_BAR = 1000
N_BARS = 600
MOVES = np.array([1.0, -1.0, 0.1])
COST = 0.3
SMALL = Network(hidden=(32, 32), atoms=31)


def settings(**changes) -> Learner:
    """Sizes that solve the market in about a second."""
    values = {
        "branches": ("direction",),
        "gamma": 0.5,
        "n_step": 1,
        "learning_rate": 4e-3,
        "batch": 64,
        "updates": 450,
        "epochs": 3,
        "envs": 32,
        "episode_steps": 64,
        "target_every": 30,
        "replay_rows": 8192,
        "v_max": 3.0,
    }
    return Learner(**(values | changes))


def bar_part(n: int = N_BARS) -> np.ndarray:
    """float32[n, 115]: the context one-hot in the first three columns."""
    rows = np.zeros((n, N_BAR), np.float32)
    rows[np.arange(n), (FIRST_BAR + np.arange(n)) % 3] = 1
    return rows


def plan(**changes) -> Plan:
    values = {
        "bar_part": bar_part(),
        "first_bar": FIRST_BAR,
        "learner": settings(),
        "network": SMALL,
        "seed": 0,
    }
    return Plan(**(values | changes))


def next_position(direction: np.ndarray, position: np.ndarray) -> np.ndarray:
    """-1, kept, 1 or 0 by direction; always full size."""
    choices = [
        direction == Direction.SHORT,
        direction == Direction.HOLD,
        direction == Direction.LONG,
    ]
    return np.select(choices, [-1.0, position, 1.0], 0.0)


def best_values(gamma: float, ruin: bool = False) -> np.ndarray:
    """Q*[context, position + 1, direction] by value iteration, float64."""
    q = np.zeros((3, 3, 4))
    for _ in range(200):
        for c in range(3):
            for position in (-1, 0, 1):
                for a in Direction:
                    held = float(next_position(np.array(int(a)), np.array(position)))
                    reward = held * MOVES[c] - COST * abs(held - position)
                    future = 0.0 if is_ruin(c, held, ruin) else q[(c + 1) % 3, int(held) + 1].max()
                    q[c, position + 1, a] = reward + gamma * future
    return q


def is_ruin(context, held, ruin):
    """With `ruin`, long over the small move ends the episode."""
    return ruin & (context == 2) & (held == 1)


@dataclass
class ToyCollector:
    """Plays the market; deterministic in (round, epsilon, weights)."""

    learner: Learner
    ruin: bool = False
    calls: list = field(default_factory=list)
    scale: dict = field(default_factory=dict)  # round -> factor of the reward

    def collect(self, weights, round, epsilon) -> Experience:
        self.calls.append((round, epsilon, weights.weight_hash))
        rng = np.random.default_rng([7, round])
        steps, envs = self.learner.episode_steps, self.learner.envs
        start = rng.integers(FIRST_BAR, FIRST_BAR + N_BARS - steps, envs).astype(np.int32)
        portfolio = np.zeros((steps + 1, envs, 13), np.float32)
        portfolio[0, :, 0] = rng.integers(-1, 2, envs)  # any position, so that all states are seen
        action = np.zeros((steps, envs, 4), np.uint8)
        reward = np.zeros((steps, envs), np.float32)
        end = np.full((steps, envs), End.DEAD, np.uint8)
        alive = np.ones(envs, bool)
        rows = bar_part()
        for t in range(steps):
            bar = start + t
            chosen = greedy(
                forward(weights, rows[bar - FIRST_BAR], portfolio[t]), self.learner.branches
            )
            for branch in learned(self.learner.branches):
                explore = rng.random(envs) < epsilon
                count = SPANS[branch][1] - SPANS[branch][0]
                chosen[:, branch] = np.where(
                    explore, rng.integers(0, count, envs), chosen[:, branch]
                )
            position = portfolio[t, :, 0]
            held = next_position(chosen[:, 0], position)
            earned = held * MOVES[bar % 3] - COST * np.abs(held - position)
            reward[t] = earned * self.scale.get(round, 1.0) * alive
            ruined = alive & is_ruin(bar % 3, held, self.ruin)
            last = End.TRUNCATED if t == steps - 1 else End.RUNNING
            end[t, alive] = np.where(ruined, End.TERMINATED, last)[alive]
            action[t] = chosen
            portfolio[t + 1, :, 0] = held
            alive = alive & ~ruined
        equity = 100 + reward.cumsum(0)
        return Experience(start, action, reward, end, portfolio, None, equity.astype(np.float32))


@dataclass
class ToyEvaluator:
    """Scores by a script if there is one, else by the greedy policy's mean reward on one cycle."""

    branches: tuple = ("direction",)
    script: list | None = None
    seen: list = field(default_factory=list)

    def evaluate(self, weights, window_name) -> Score:
        self.seen.append(window_name)
        if self.script is not None:
            done = self.seen.count("validation") - 1
            sharpe = self.script[done] if window_name == "validation" else 0.5
            return Score(sharpe, 1.0, np.full(3, float(len(self.seen))))
        position, earned, rows = np.zeros(1), [], bar_part()
        for bar in range(FIRST_BAR, FIRST_BAR + 60):
            portfolio = np.zeros((1, 13), np.float32)
            portfolio[:, 0] = position
            direction = greedy(forward(weights, rows[[bar - FIRST_BAR]], portfolio), self.branches)
            held = next_position(direction[:, 0], position)
            earned.append(float((held * MOVES[bar % 3] - COST * abs(held - position))[0]))
            position = held
        return Score(float(np.mean(earned)), float(np.sum(earned)), np.array(earned))
