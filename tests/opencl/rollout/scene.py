"""A scenario network, its bars, and banks that its contexts meet; what the rollout's tests play."""

import numpy as np

from backtest import rng
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.snapshot import MISS
from backtest.agent.random_policy import random_scenario
from backtest.agent.scenario_weights import (
    bar_context,
    forward,
    interpret,
    step_context,
    step_key,
    task_context,
)
from backtest.agent.weights import N_BAR
from backtest.config import Network
from backtest.market.layout import N_PORTFOLIO, End, Fill, Formula
from backtest.market.rough import rough_params, rough_tape
from opencl.rollout import PolicySkills, Rollout, Shape
from tests.snapshots import snapshot_of

START, BARS, STEPS, E = 100, 160, 30, 21  # 21: more than one tile of either kernel, none whole
SLOTS = 7
BRANCHES = ("direction", "magnitude")
STREAM = int(rng.stream(rng.Stage.COLLECT, 3))
NETWORK = Network(
    kind="scenario",
    hidden=(18, 14),
    atoms=11,
    scenarios=3,
    horizon=4,
    latent=10,
    forecaster_hidden=13,
)
RECORD = {"portfolio": True, "trace": True, "values": True, "slots": True}
COLUMNS = ("action", "reward", "equity", "end", "portfolio", "trace", "values", "slots")
FEW = {"policies": slice(2, 4), "episodes": slice(0, 4)}  # step, both
Q_TOLERANCE, AGREEMENT = 1e-5, 0.995
VARIANTS = ("none", "task", "step", "both", "features")


def shape_of(network, slots=SLOTS):
    sizes = (network.scenarios, network.horizon, network.latent)
    more = (network.stack_size, network.top_k, slots)
    return Shape(network.hidden, network.atoms, BRANCHES, "scenario", *sizes, *more)


class Scene:
    """Bars, states, two policies, and five variants of each."""

    def __init__(self, network=NETWORK, seed=1):
        self.network, self.shape = network, shape_of(network)
        self.tape = rough_tape(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN), BARS, seed, START)
        draw = np.random.default_rng(seed)
        self.x = draw.normal(0, 1, (BARS, N_BAR)).astype(np.float32)
        self.weights = [random_scenario(network, seed + i, alpha=0.3) for i in range(2)]
        portfolio = draw.normal(0, 1, (BARS, N_PORTFOLIO)).astype(np.float32)
        self.policies, self.skills = [], []
        for w in self.weights:
            steps = step_context(w, bar_context(w, self.x))
            task = snapshot_of(task_context(w, self.x, portfolio), 6, w.task_dim, seed, 0.2)
            step = snapshot_of(steps, 7, w.step_dim, seed + 1, 0.3)
            features = snapshot_of(self.x[:, :42], 5, w.step_dim, seed + 2, 0.2)
            banks = (None, (task, None), (None, step), (task, step), (None, features))
            self.skills += [pair and PolicySkills(*pair) for pair in banks]
            self.policies += [w] * len(banks)
        self.start = np.random.default_rng(seed).integers(
            START, START + BARS - STEPS, (len(self.policies), E)
        )
        self.keys = np.repeat(rng.key(seed, "X", "2001")[None], len(self.policies), 0)

    def rollout(self, device, variant, shape=None, budget=None):
        return Rollout(device, self.tape, self.x, shape or self.shape, variant, budget)

    def launch(self, rollout, skills="all", policies=slice(None), episodes=slice(None)):
        """Enqueue variants of both policies; skills = None plays them without any."""
        given = self.skills[policies] if skills == "all" else skills
        start, keys = self.start[policies, episodes], self.keys[policies]
        asked = {"stage_round": STREAM, "epsilon": 0.2, "skills": given, **RECORD}
        return rollout.launch(self.policies[policies], start, STEPS, keys, **asked)

    def play(self, rollout, skills="all", **chosen):
        return self.launch(rollout, skills, **chosen).read()

    def expected(self, seen):
        """NumPy's slots and action values, given the slots of all banks are NumPy's.

        Returns int[steps, n, 2] and float32[steps, n, heads] on the device's portfolio states.
        """
        n, older = len(seen.start), self.network.stack_size - 1
        slots = np.full((STEPS, n, 2), MISS)
        values = np.empty(seen.values.shape, np.float32)
        for i, (w, skills) in enumerate(zip(self.policies, self.skills, strict=True)):
            mine = slice(i * E, (i + 1) * E)
            banks = skills or PolicySkills()
            past = np.zeros((E, older, w.task_dim), np.float32)
            for t in range(STEPS):
                x = self.x[seen.start[mine] + t - START]
                portfolio = np.ascontiguousarray(seen.portfolio[t, mine])
                both = {"task": banks.task, "step": banks.step}
                if banks.task is not None:
                    queries = task_context(w, x, portfolio)
                    slots[t, mine, 0] = retrieve_rows(banks.task, queries)
                if banks.step is not None:
                    hidden = step_context(w, bar_context(w, x))
                    key = step_key(banks.step, x, hidden)
                    slots[t, mine, 1] = retrieve_rows(banks.step, key)
                q = forward(w, x, portfolio, history=past if older else None, **both)
                values[t, mine] = q[:, self.shape.heads]
                if older:
                    now = interpret(w, x, portfolio, **both)
                    past = np.concatenate([now[:, None], past[:, :-1]], axis=1)
        return slots, values


def check_values(seen, slots, values):
    """Action values where the banks retrieved what NumPy's did, and how often they did."""
    living = seen.end != End.DEAD
    agree = (slots == seen.slots).all(axis=-1)
    assert agree[living].mean() >= AGREEMENT
    known = np.logical_and.accumulate(agree | ~living, axis=0)  # a stack remembers a difference
    limit = Q_TOLERANCE * np.abs(values).max()
    np.testing.assert_allclose(seen.values[known], values[known], atol=limit, rtol=0)


def same(a, b, episodes_a=slice(None), episodes_b=slice(None), columns=COLUMNS):
    """Every array of two trajectories has the same bits."""
    for name in columns:
        mine, other = (getattr(t, name)[:, e] for t, e in ((a, episodes_a), (b, episodes_b)))
        assert mine.tobytes() == other.tobytes(), name
