"""Passes walk every episode through every step once, on tables that hold its bars."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opencl.rollout.passes import passes

WIDTH = 4


def walked(start, steps, most):
    """Return the passes, and how often each episode took each step, int[n, steps]."""
    todo = list(passes(start, steps, most, WIDTH))
    flat, each = start.ravel(), start.shape[1]
    count = np.zeros((flat.size, steps), int)
    reached = np.zeros(flat.size, int)
    for part in todo:
        assert 1 <= part.bars <= most
        own = part.episodes[part.episodes >= 0]
        assert (reached[own] == part.first_step).all()  # steps in order
        reached[own] = part.stop_step
        count[own, part.first_step : part.stop_step] += 1
        first, last = flat[own] + part.first_step, flat[own] + part.stop_step
        assert (first >= part.first_bar).all() and (last <= part.first_bar + part.bars).all()
        for row in part.episodes:
            living = row[row >= 0]
            assert len(living) and (row[len(living) :] == -1).all()
            assert len(np.unique(living // each)) == 1 and (np.diff(flat[living]) >= 0).all()
    groups = [part.group for part in todo]
    assert groups == sorted(groups)
    return todo, count


@settings(max_examples=60, deadline=None)
@given(
    policies=st.integers(1, 3),
    episodes=st.integers(1, 9),
    spread=st.integers(1, 200),
    steps=st.integers(1, 60),
    most=st.integers(1, 300),
    seed=st.integers(0, 9),
)
def test_every_episode_takes_every_step_once(policies, episodes, spread, steps, most, seed):
    start = 50 + np.random.default_rng(seed).integers(0, spread, (policies, episodes))
    _, count = walked(start, steps, most)
    assert (count == 1).all()


def test_what_fits_is_one_pass_in_the_order_of_starts():
    start = np.array([[30, 10, 20, 25, 12], [11, 11, 11, 11, 11]])
    (part,), _ = walked(start, 40, 60)
    assert (part.first_bar, part.bars, part.first_step, part.stop_step) == (10, 60, 0, 40)
    assert part.episodes.tolist() == [[1, 4, 2, 3], [0, -1, -1, -1], [5, 6, 7, 8], [9, -1, -1, -1]]


def test_short_walks_are_grouped_by_where_they_start():
    todo, _ = walked(np.array([[0, 500, 2, 90, 501, 99]]), 10, 100)
    assert [part.episodes[0].tolist() for part in todo] == [
        [0, 2, 3, -1],
        [5, -1, -1, -1],
        [1, 4, -1, -1],
    ]
    assert [(part.first_bar, part.bars) for part in todo] == [(0, 100), (99, 10), (500, 11)]


@pytest.mark.parametrize(
    "start, lengths", [([[7, 7]], [30, 30, 10]), ([[0, 20]], [15, 15, 15, 15, 10])]
)
def test_long_walks_are_cut_in_time(start, lengths):
    """70 steps, 30 bars: equal starts leave all of a table to time, others their spread."""
    todo, _ = walked(np.array(start), 70, 30)
    first = [part for part in todo if part.group == 0]
    assert [part.stop_step - part.first_step for part in first] == lengths
