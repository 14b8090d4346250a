"""Windows of several folds in one launch: every bit as when each is played for itself.

`market_of` gives each policy the price base of its window.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest import rng
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR
from backtest.market.layout import BRANCHES, End, Fill, Formula
from backtest.market.rough import rough_params, rough_tape
from opencl.rollout import Rollout, Shape, Windows
from tests.opencl.rollout.scene import COLUMNS, NETWORK, Scene, shape_of

LENGTHS, BASES = (60, 25, 41), (5000.0, 12.5, 5000.25)
MLP = Shape((24, 30), 11, tuple(BRANCHES))
KEY = rng.key(1, "X", "2001")


def window(i):
    """Return the tape and states of a window that lies anywhere on the global axis."""
    params = np.array(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN))
    params["base"], params["tx_cost_multiplier"] = BASES[i], 1e-4
    tape = rough_tape(params, LENGTHS[i] + 1, seed=i, start=1000 * (3 - i))
    x = np.random.default_rng(i).normal(0, 1, (len(tape.bars), N_BAR)).astype(np.float32)
    return tape, x


def casts(kind):
    """Return shape, and policies with their skills and the window of each: some in several."""
    if kind == "mlp":
        policies = [random_policy(MLP.hidden, MLP.atoms, seed, alpha=0.3) for seed in range(3)]
        picks = [(0, 0), (1, 0), (2, 1), (0, 1), (1, 2)]
        return MLP, [(policies[p], None, w) for p, w in picks]
    scene = Scene(NETWORK)
    # a policy of its own in each window, with variants none, task, step and both of it
    picks = [(0, 0), (1, 0), (2, 0), (7, 1), (8, 1), (5, 2)]
    return shape_of(NETWORK), [(scene.policies[p], scene.skills[p], w) for p, w in picks]


def play(rollout, policies, skills, first, steps, base=None):
    count = len(policies)
    return rollout.run(
        policies, np.reshape(first, (count, 1)), steps, np.repeat(KEY[None], count, 0),
        stage_round=5, epsilon=0.2, base=base, skills=skills if any(skills) else None,
        portfolio=True, trace=True, values=True, slots=True,
    )  # fmt: skip


@pytest.mark.parametrize("variant", ["lanes", "group"])
@pytest.mark.parametrize("kind", ["mlp", "scenario"])
def test_one_launch_equals_one_for_each_window(device, variant, kind):
    shape, cast = casts(kind)
    windows = [window(i) for i in range(len(LENGTHS))]
    joined = Windows.joined(windows)
    at = np.array([w for _, _, w in cast])
    policies, skills = [p for p, _, _ in cast], [s for _, s, _ in cast]
    where = joined.first[at], joined.steps[at], joined.base[at]
    whole = Rollout(device, joined.tape, joined.states, shape, variant)
    seen = [play(whole, policies, skills, *where)]
    # tables of 20 bars: walks are cut in time
    tables = whole._tables(policies, list(range(len(policies))), [s and s.step for s in skills])
    small = Rollout(
        device, joined.tape, joined.states, shape, variant, budget=20 * tables.bar_bytes
    )
    seen.append(play(small, policies, skills, *where))
    for i, (policy, skill, w) in enumerate(cast):
        tape, x = windows[w]
        alone = Rollout(device, tape, x, shape, variant)
        steps = LENGTHS[w]
        mine = play(alone, [policy], [skill], tape.start, steps)
        for out in seen:
            for name in COLUMNS:
                rows = slice(0, steps)
                a, b = getattr(mine, name)[rows, 0], getattr(out, name)[rows, i]
                assert a.tobytes() == b.tobytes(), (name, i)
            assert (out.end[steps:, i] == End.DEAD).all()
            assert not out.reward[steps:, i].any()
    assert {End.TRUNCATED, End.DEAD} <= set(np.unique(seen[0].end))


def test_other_markets_are_refused():
    tape, x = window(0)
    dearer = np.array(tape.params)
    dearer["commission"] += 1
    with pytest.raises(ValueError, match="different markets"):
        Windows.joined([(tape, x), (replace(tape, params=dearer), x)])
