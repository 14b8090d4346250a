"""Scores: means over the steps an episode took, terms that add up to the reward."""

import numpy as np
import pytest

import backtest.audit.scores as module
from backtest import rng
from backtest.audit.policies import POLICIES, target_paths
from backtest.audit.scores import episodes_per_chunk, joined, play, score
from backtest.market.layout import COMPONENTS, STEP, End, Formula
from backtest.market.walk import walk_targets
from tests.backtest.audit.made import walk
from tests.scenes import params, random_tape

KEY = rng.key(0, "TEST", "audit")


def test_dead_rows_do_not_dilute_a_mean():
    result = np.zeros((4, 2), STEP.dtype)
    result["end"][:, 0] = [End.RUNNING, End.TERMINATED, End.DEAD, End.DEAD]
    result["end"][:, 1] = [End.RUNNING, End.RUNNING, End.RUNNING, End.TRUNCATED]
    result["reward"][:, 0] = [1, 3, 0, 0]
    result["reward"][:, 1] = [1, 2, 3, 4]
    result["gross"][:, 1] = [10, -4, 0, 1]
    result["tx_cost"][:, 1] = [2, 0, 0, 1]
    got = score(params(), result, (2, 1))
    assert got.reward[:, 0].tolist() == [2, 2.5]
    assert got.components["tx_cost"][:, 0].tolist() == [0, 0.75]
    assert got.pnl[:, 0].tolist() == [0, 4]
    assert got.ruined[:, 0].tolist() == [1, 0]


@pytest.mark.parametrize("formula", Formula)
def test_every_mean_is_that_of_a_plain_walk(formula):
    t = random_tape(400, p=params(formula=formula, commission=0.1))
    start, steps = np.array([3, 40, 200]), 70  # more steps than one block
    got = play(walk, t, start, steps, KEY, np.arange(3))
    targets = target_paths(t, start, steps, KEY, np.arange(3))
    for i, name in enumerate(POLICIES):
        r = walk_targets(t, start, targets[:, i]).result
        assert got.reward[i] == pytest.approx(r["reward"].mean(axis=0), rel=1e-4, abs=1e-6), name
        for component in COMPONENTS:
            expected = r[component].astype(float).mean(axis=0)
            assert got.components[component][i] == pytest.approx(expected, rel=1e-6), name
        # no episode is ruined: net PnL is what the equity gained
        assert got.pnl[i] == pytest.approx(r["equity"][-1] - 1000, abs=0.01), name


@pytest.mark.parametrize("formula", Formula)
def test_terms_add_up_to_the_reward(formula):
    t = random_tape(300, p=params(formula=formula, commission=0.1))
    got = play(walk, t, np.array([0, 90]), 200, KEY, np.arange(2))
    assert sum(got.terms.values()) == pytest.approx(got.reward, rel=1e-4, abs=1e-6)
    assert ("tx_cost" in got.terms) == (formula == Formula.COMPOSITE)


def test_chunks_join_to_the_whole():
    t = random_tape(200)
    start = np.arange(6) * 10
    whole = play(walk, t, start, 100, KEY, np.arange(6))
    parts = [play(walk, t, start[i], 100, KEY, i) for i in (np.arange(4), np.arange(4, 6))]
    both = joined(parts)
    for name in ("reward", "pnl", "ruined"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
    for name in COMPONENTS:
        np.testing.assert_array_equal(both.components[name], whole.components[name])
    for name in whole.terms:
        np.testing.assert_array_equal(both.terms[name], whole.terms[name])


def test_chunks_bound_memory(monkeypatch):
    row = STEP.dtype.itemsize * len(POLICIES)
    monkeypatch.setattr(module, "CHUNK_BYTES", 10 * 100 * row)
    assert episodes_per_chunk(100) == 10
    assert episodes_per_chunk(1000) == 1
    assert episodes_per_chunk(5000) == 1
