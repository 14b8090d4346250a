"""skill_score.cl: sums against ordered.py bit for bit, scores and choices by hand.

Whole searches are compared with retrieval.py in test_skill_retrieval.py.
"""

import numpy as np
import pytest

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from tests.opencl.wrapping import evaluate

WRAPPERS = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void test_lanes(__global const float *x,
                                                                        __global float *out)
{
    __local float shared[64] __attribute__((aligned(16)));
    float lane[64];
    const int row = get_global_id(0);
    for (int i = 0; i < 64; i++) {
        lane[i] = shared[i] = x[64 * row + i];
    }
    out[3 * row] = lanes_sum(lanes_zero());
    out[3 * row + 1] = lanes_of(lane);
    out[3 * row + 2] = lanes_total(shared);
}

__kernel void test_score_slots(__global const float *x, __global const float *y, const int dim,
                               __global float *out, __global float *tail)
{
    const int i = get_global_id(0);
    out[i] = score_slots(x + i * dim, y, dim);
    vstore16(load_16(x + i * dim, dim - min(dim, 9), dim), i, tail);
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void test_group_sum(
    __global const float *x, const int padded, __global float *out)
{
    __local float part[2 * 64];
    const int half_ = get_local_id(0) / 64; // two rows a group, 64 items each
    const int i = get_local_id(0) % 64;
    __global const float *mine = x + (get_group_id(0) * 2 + half_) * padded;
    float lane = 0.0f;
    for (int k = i; k < padded; k += 64) {
        lane = lane + mine[k];
    }
    out[get_global_id(0)] = group_sum(part + half_ * 64, i, lane);
}

__kernel void test_score_finalize(__global const float *dot_, __global const float *square,
                                  __global const float *norm, __global const uchar *eligible,
                                  __global const float *bonus, const float threshold,
                                  __global float *score, __global float *similarity)
{
    const int i = get_global_id(0);
    score[i] = score_finalize(dot_[i], square[i], norm[i], eligible[i], bonus[i], threshold);
    similarity[i] = cosine(dot_[i], sqrt(square[i]), norm[i]);
}

__kernel void test_arg_max(__global const float *score, __global const uchar *disagree,
                           const int slots, __global int *straight, __global int *merged)
{
    const int i = get_global_id(0);
    Best all = best_none();
    for (int n = 0; n < slots; n++) {
        all = arg_max_partial(all, score[i * slots + n], n);
    }
    straight[i] = arg_max_slot(all, disagree, slots);
    Best parts = best_none();
    for (int n = 0; n < slots; n += 3) {
        Best some = best_none();
        for (int k = n; k < min(n + 3, slots); k++) {
            some = arg_max_partial(some, score[i * slots + k], k);
        }
        parts = arg_max_merge(parts, some);
    }
    merged[i] = arg_max_slot(parts, disagree, slots);
}
"""
F32 = np.float32


@pytest.fixture
def program(device_program):
    return device_program(["skill_score.cl"], WRAPPERS)


def rows(n, dim, seed=0):
    """Return float32[n, dim] of very unequal sizes."""
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 1, (n, dim)) * np.exp(rng.normal(0, 2, (n, dim)))).astype(F32)


def test_lanes(program):
    """lanes_zero, lanes_sum, lanes_of, lanes_total."""
    x = rows(9, 64)
    (out,) = evaluate(program, "test_lanes", 9, x, out=[np.empty((9, 3), F32)], group=1)
    expected = ordered_sum(x)
    np.testing.assert_array_equal(out, np.stack([0 * expected, expected, expected], 1))


@pytest.mark.parametrize("dim", [1, 15, 16, 63, 64, 65, 130, 192])
def test_score_slots_and_load_16(program, dim):
    """Rows that end anywhere, neighbours behind them."""
    x, y = rows(7, dim), rows(1, dim, seed=2)
    out, tail = evaluate(
        program, "test_score_slots", 7, x, y, np.int32(dim),
        out=[np.empty(7, F32), np.empty((7, 16), F32)],
    )  # fmt: skip
    np.testing.assert_array_equal(out, ordered_sum(x * y))
    last = x[:, -min(dim, 9) :]
    np.testing.assert_array_equal(tail, np.pad(last, ((0, 0), (0, 16 - last.shape[1]))))


@pytest.mark.parametrize("dim", [3, 64, 200])
def test_group_sum_gives_every_item_the_total(program, dim):
    x = rows(6, dim)
    padded = np.pad(x, ((0, 0), (0, -dim % 64)))
    (out,) = evaluate(
        program, "test_group_sum", 6 * 64, padded, np.int32(padded.shape[1]),
        out=[np.empty(6 * 64, F32)], group=128,
    )  # fmt: skip
    np.testing.assert_array_equal(out.reshape(6, 64), ordered_sum(x)[:, None].repeat(64, 1))


def test_score_finalize(program):
    n, rng = 4000, np.random.default_rng(3)
    dot, bonus = rng.normal(0, 1, (2, n)).astype(F32)
    square = np.where(rng.random(n) < 0.1, 1e-13, rng.exponential(1, n)).astype(F32)
    norm = rng.exponential(1, n).astype(F32)
    eligible = (rng.random(n) < 0.7).astype(np.uint8)
    dot[:3] = np.nan, np.inf, -np.inf
    score, cosine = evaluate(
        program, "test_score_finalize", n, dot, square, norm, eligible, bonus, F32(0.3),
        out=[np.empty(n, F32), np.empty(n, F32)],
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        expected = dot / (np.sqrt(square) * norm)
        hit = (eligible == 1) & (square >= F32(1e-12)) & (expected >= F32(0.3))
    np.testing.assert_array_equal(cosine, expected)
    np.testing.assert_array_equal(score, np.where(hit, expected + bonus, F32(-np.inf)))
    assert hit.any() and (~hit).any()


def test_arg_max_by_hand(program):
    """Rows: none, one, a tie to the lowest, close and opposed, close and agreeing, far apart."""
    off = -np.inf
    score = np.array(
        [[off] * 7, [off, off, 0.5, off, off, off, off], [0.1, 0.9, 0.2, 0.9, off, off, off],
         [0.1, off, 0.9, off, off, 0.89, 0.5], [0.1, 0.9, off, off, 0.89, off, 0.5],
         [off, off, 0.9, off, off, 0.87, 0.5], [off, off, 0.89, off, off, 0.9, 0.895]], F32,
    )  # fmt: skip
    disagree = np.zeros((7, 7), np.uint8)
    disagree[2, 5] = disagree[5, 2] = 1  # and 5, 6 agree
    straight, merged = evaluate(
        program, "test_arg_max", 7, score, disagree, np.int32(7),
        out=[np.empty(7, np.int32), np.empty(7, np.int32)],
    )  # fmt: skip
    assert straight.tolist() == [MISS, 2, 1, ABSTAIN, 1, 2, 5]
    np.testing.assert_array_equal(straight, merged)
