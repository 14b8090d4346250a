from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.agent.experience import Experience
from backtest.agent.returns import n_step
from backtest.errors import DataError
from backtest.market.layout import BRANCHES, COMPONENTS, End

R, TERM, TRUNC, DEAD = End.RUNNING, End.TERMINATED, End.TRUNCATED, End.DEAD


def experience(end, reward=None, start=None, components=False) -> Experience:
    """Experience with these ends [T, N]; portfolio slot 0 is 100*step + episode."""
    end = np.array(end, np.uint8)
    steps, episodes = end.shape
    portfolio = np.zeros((steps + 1, episodes, 13), np.float32)
    portfolio[:, :, 0] = 100 * np.arange(steps + 1)[:, None] + np.arange(episodes)
    reward = np.arange(1, end.size + 1).reshape(end.shape) if reward is None else reward
    parts = np.random.default_rng(0).random((steps, episodes, len(COMPONENTS)))
    return Experience(
        start=np.array(start or [1000 * (e + 1) for e in range(episodes)], np.int32),
        action=np.tile(np.array([2, 1, 0, 2], np.uint8), (steps, episodes, 1)),
        reward=np.array(reward, np.float32),
        end=end,
        portfolio=portfolio,
        components=parts.astype(np.float32) if components else None,
        equity=np.full(end.shape, 100, np.float32),
    )


# three episodes: truncated in the last row, terminated at t = 2, running beyond the last row
ENDS = [[R, R, R], [R, R, R], [R, TERM, R], [TRUNC, DEAD, R]]
REWARDS = [[1, 10, 100], [2, 20, 200], [4, 40, 400], [8, 80, 800]]


def test_three_step_returns_by_hand():
    result = n_step(experience(ENDS, REWARDS), 3, 0.5)
    # 1 + 2/2 + 4/4 = 3; 2 + 4/2 + 8/4 = 6; 4 + 8/2 = 8; 8
    assert result.value[:, 0].tolist() == [3, 6, 8, 8]
    # the row after ruin holds nothing
    assert result.value[:, 1].tolist() == [30, 40, 40, 0]
    assert result.value[:, 2].tolist() == [300, 600, 800, 800]
    assert result.steps.T.tolist() == [[3, 3, 2, 1], [3, 2, 1, 0], [3, 3, 2, 1]]
    # TRUNCATED bootstraps from the state after it, with the discount of the steps summed
    assert result.bootstrap[:, 0].tolist() == [0.125, 0.125, 0.25, 0.5]
    # TERMINATED within the return stops the bootstrap: here within three steps of every row
    assert result.bootstrap[:, 1].tolist() == [0, 0, 0, 0]
    assert result.bootstrap[:, 2].tolist() == [0.125, 0.125, 0.25, 0.5]


def test_one_step_returns_are_the_rewards():
    result = n_step(experience(ENDS, REWARDS), 1, 0.9)
    alive = experience(ENDS).alive
    assert (result.value[alive] == np.array(REWARDS)[alive]).all()
    assert result.bootstrap[:, 1].tolist() == pytest.approx([0.9, 0.9, 0, 0])


def brute_force(x: Experience, t: int, e: int, n: int, gamma: float):
    total, k = 0.0, 0
    while k < n and t + k < len(x.reward):
        total += gamma**k * float(x.reward[t + k, e])
        k += 1
        if x.end[t + k - 1, e] == TERM:
            return total, k, 0.0
        if x.end[t + k - 1, e] == TRUNC:
            break
    return total, k, gamma**k


@st.composite
def ragged(draw):
    steps, lengths = 9, draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    ends = np.zeros((steps, len(lengths)), np.uint8)
    for e, length in enumerate(lengths):
        if length <= steps:
            ends[length - 1, e] = draw(st.sampled_from([TERM, TRUNC]))
            ends[length:, e] = DEAD
    seed = draw(st.integers(0, 99))
    return experience(ends, np.random.default_rng(seed).normal(size=ends.shape))


@settings(max_examples=60, deadline=None)
@given(ragged(), st.integers(1, 12), st.floats(0.1, 0.99))
def test_returns_equal_the_definition(x, n, gamma):
    result = n_step(x, n, gamma)
    for t, e in np.argwhere(x.alive):
        want = brute_force(x, t, e, n, gamma)
        got = (result.value[t, e], result.steps[t, e], result.bootstrap[t, e])
        assert got == pytest.approx(want, rel=1e-5, abs=1e-5)


def test_table_is_episode_by_episode_in_time_order():
    table = experience(ENDS, REWARDS, components=True).to_table(first_episode=40)
    names = ["episode", "t", "bar", *BRANCHES, "reward", *COMPONENTS, "end", "equity", "position"]
    assert table.column_names == names
    rows = table.to_pydict()
    assert rows["episode"] == [40] * 4 + [41] * 3 + [42] * 4
    assert rows["t"] == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3]
    assert rows["bar"][4:7] == [2000, 2001, 2002]
    assert rows["reward"][4:7] == [10, 20, 40]
    assert rows["end"][6] == TERM
    assert rows["direction"] == [2] * 11
    assert rows["position"][:3] == [100, 200, 300]  # after the step
    source = experience(ENDS, REWARDS, components=True).components
    assert rows["r_aux"][5] == source[1, 1, -1]


def test_components_are_optional():
    assert "dsr" not in experience(ENDS).to_table().column_names


def test_steps_count_decisions():
    assert experience(ENDS).steps == 11


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("reward", np.zeros((4, 3)), r"reward is float64\[4, 3\].*float32\[4, 3\]"),
        ("portfolio", np.zeros((4, 3, 13), np.float32), r"portfolio is .*float32\[5, 3, 13\]"),
        ("start", np.zeros(2, np.int32), r"start is int32\[2\]"),
        ("components", np.zeros((4, 3, 9), np.float32), r"components is"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name, value, match):
    with pytest.raises(DataError, match=match):
        replace(experience(ENDS), **{name: value})


@pytest.mark.parametrize("ends", [[[DEAD], [R]], [[TERM], [R]], [[R], [DEAD]], [[TRUNC], [TRUNC]]])
def test_ends_that_contradict_themselves_are_refused(ends):
    with pytest.raises(DataError, match="DEAD"):
        experience(ends)


def test_foreign_bars_and_broken_numbers_are_named():
    x = experience(ENDS, REWARDS)
    x.check(1000, 3005)
    with pytest.raises(
        DataError, match=r"step 3 of episode 2 \(bar 3003\) leaves .*\[1000, 3004\)"
    ):
        x.check(1000, 3004)  # the state after the last step is bar 3004
    with pytest.raises(DataError, match=r"step 0 of episode 0 \(bar 1000\)"):
        x.check(1001, 3005)
    reward = np.array(REWARDS, np.float32)
    reward[3, 1] = np.nan  # a dead row may hold anything
    replace(x, reward=reward).check(1000, 3005)
    reward[1, 2] = np.inf
    with pytest.raises(DataError, match=r"step 1 of episode 2 \(bar 3001\) .*not finite"):
        replace(x, reward=reward).check(1000, 3005)
    portfolio = x.portfolio.copy()
    portfolio[4, 0, 12] = np.nan
    with pytest.raises(DataError, match=r"step 3 of episode 0 .*not finite"):
        replace(x, portfolio=portfolio).check(1000, 3005)
