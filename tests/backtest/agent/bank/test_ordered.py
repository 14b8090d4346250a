import numpy as np
import pytest

from backtest.agent.bank import ordered
from backtest.agent.bank.ordered import NO_COSINE, norm, ordered_sum, square

SHAPES = [(4,), (64,), (65,), (4032,), (1, 4032), (21, 1008), (2, 3, 200), (0, 70)]


def cosines(rows, x):
    return ordered.cosines(rows, x, square(x))


def by_hand(x):
    """Lane i adds x[i], x[i + 64], ...; then lane i + lane i + width for 32, 16, ..., 1."""
    lanes = [np.float32(0)] * 64
    for i, value in enumerate(x):
        lanes[i % 64] = lanes[i % 64] + value
    for width in (32, 16, 8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + width] for i in range(width)]
    return lanes[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_order_is_lanes_then_a_tree(shape):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(shape) * 10 ** rng.uniform(-3, 3, shape)).astype(np.float32)
    want = np.array([by_hand(row) for row in x.reshape(-1, shape[-1])], np.float32)
    assert np.array_equal(ordered_sum(x), want.reshape(shape[:-1]))


def test_the_order_does_not_depend_on_the_layout_in_memory():
    x = np.random.default_rng(2).standard_normal((9, 500)).astype(np.float32)
    assert np.array_equal(ordered_sum(np.asfortranarray(x)), ordered_sum(x))
    assert np.array_equal(ordered_sum(np.repeat(x, 2, axis=0)[::2]), ordered_sum(x))


def test_a_sum_of_negative_zeros_is_positive_zero():
    assert not np.signbit(ordered_sum(np.full(64, -0.0, np.float32)))


def test_cosine_by_hand():
    rows = np.array([[3, 4], [4, -3], [0, 0], [-3, -4]], np.float32)
    found = cosines(rows, np.array([3, 4], np.float32))
    assert found.dtype == np.float32
    assert np.array_equal(found, np.array([1, 0, NO_COSINE, -1], np.float32))
    assert (cosines(rows, np.zeros(2, np.float32)) == NO_COSINE).all()


def test_a_squared_norm_below_1e_12_is_no_direction():
    assert cosines(np.array([[1.1e-6]], np.float32), np.ones(1, np.float32))[0] == 1
    assert cosines(np.array([[0.9e-6]], np.float32), np.ones(1, np.float32))[0] == NO_COSINE


def test_norms_of_what_is_not_finite_are_not_finite():
    assert norm(np.array([3, 4], np.float32)) == 5
    for bad in (np.nan, np.inf, 1e30):
        assert not np.isfinite(square(np.array([0, bad], np.float32)))
