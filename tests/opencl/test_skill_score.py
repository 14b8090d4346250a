"""skill_score.cl against backtest/agent/bank/ordered.py and retrieval.py, bit for bit."""

import numpy as np
import pytest

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.snapshot import ABSTAIN, MISS, Snapshot
from tests.opencl.wrapping import evaluate

WRAPPERS = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void test_sums(
    __global const float *x, __global const float *key, const int padded, __global float *by_item,
    __global float *by_local, __global float *total)
{
    const int i = get_global_id(0);
    by_item[i] = score_slots(x + i * padded, key, padded);
    __local float turned[2 * 192];
    for (int k = 0; k < padded; k++) {
        turned[2 * k] = x[i * padded + k];
    }
    by_local[i] = score_slots_local(turned, 2, key, padded);
    float lane[64];
    for (int k = 0; k < 64; k++) {
        lane[k] = turned[k] = key[k];
    }
    total[2 * i] = lanes_sum(lanes_zero()) + lanes_of(lane);
    total[2 * i + 1] = lanes_total(turned);
}

__kernel void test_ordered_dot(__global const float *x, __global const float *y, const int dim,
                               __global float *out, __global float *tail)
{
    const int i = get_global_id(0);
    out[i] = ordered_dot(x + i * dim, y, dim);
    vstore16(load_16(x + i * dim, dim - min(dim, 9), dim), i, tail);
}

__kernel void test_sums_16(__global const float *x, __global const float *key, const int padded,
                           __global float *dot_, __global float *square)
{
    float16 mine[192]; // x is [padded][16]
    for (int k = 0; k < padded; k++) {
        mine[k] = vload16(k, x);
    }
    vstore16(score_slots_16(mine, key, padded), 0, dot_);
    vstore16(square_16(mine, padded), 0, square);
}

__kernel void test_lanes_sum_16(__global const float *x, __global float *out)
{
    float16 lane[64];
    for (int i = 0; i < 64; i++) {
        lane[i] = vload16(i, x);
    }
    vstore16(lanes_sum_16(lane), 0, out);
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

__kernel void test_retrieve(__global const float *x, __global const float *keys,
                            __global const float *norms, __global const uchar *eligible,
                            __global const float *bonus, __global const uchar *disagree,
                            const float threshold, const int slots, const int padded,
                            __global int *out)
{
    const int i = get_global_id(0);
    out[i] = retrieve(x + i * padded, keys, norms, eligible, bonus, disagree, threshold, slots,
                      padded);
}
"""
F32 = np.float32


@pytest.fixture
def program(device_program):
    return device_program(["skill_score.cl"], WRAPPERS)


def rows(n, dim, seed=0):
    """Return float32[n, dim] of very unequal sizes, and the same with the padding kernels want."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(0, 1, (n, dim)) * np.exp(rng.normal(0, 2, (n, dim)))).astype(F32)
    return x, np.pad(x, ((0, 0), (0, -dim % 64)))


@pytest.mark.parametrize("dim", [1, 63, 64, 65, 130, 192])
def test_every_way_to_sum_is_the_ordered_sum(program, dim):
    """score_slots, score_slots_local, score_slots_16, square_16, lanes_sum, _of and _total."""
    x, padded = rows(16, dim)
    key, wide = rows(1, dim, seed=1)
    width = np.int32(padded.shape[1])
    item, local, total = evaluate(
        program, "test_sums", 16, padded, wide, width,
        out=[np.empty(16, F32), np.empty(16, F32), np.empty(32, F32)], group=1,
    )  # fmt: skip
    expected = ordered_sum(x * key)
    np.testing.assert_array_equal(item, expected)
    np.testing.assert_array_equal(local, expected)
    np.testing.assert_array_equal(total, ordered_sum(wide[:, :64]).repeat(32))
    dot, square = evaluate(
        program, "test_sums_16", 1, np.ascontiguousarray(padded.T), wide, width,
        out=[np.empty(16, F32), np.empty(16, F32)],
    )  # fmt: skip
    np.testing.assert_array_equal(dot, expected)
    np.testing.assert_array_equal(square, ordered_sum(x * x))


@pytest.mark.parametrize("dim", [1, 15, 16, 63, 64, 65, 130])
def test_ordered_dot_and_load_16(program, dim):
    """Rows that end anywhere, neighbours behind them."""
    x, _ = rows(7, dim)
    y, _ = rows(1, dim, seed=2)
    out, tail = evaluate(
        program, "test_ordered_dot", 7, x, y, np.int32(dim),
        out=[np.empty(7, F32), np.empty((7, 16), F32)],
    )  # fmt: skip
    np.testing.assert_array_equal(out, ordered_sum(x * y))
    last = x[:, -min(dim, 9) :]
    np.testing.assert_array_equal(tail, np.pad(last, ((0, 0), (0, 16 - last.shape[1]))))


def test_lanes_sum_16(program):
    x, _ = rows(16, 64)
    (out,) = evaluate(program, "test_lanes_sum_16", 1, x.T.copy(), out=[np.empty(16, F32)])
    np.testing.assert_array_equal(out, ordered_sum(x))


@pytest.mark.parametrize("dim", [3, 64, 200])
def test_group_sum_gives_every_item_the_total(program, dim):
    x, padded = rows(6, dim)
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


def snapshot(rng, slots, dim, threshold):
    """A snapshot with repeated keys, so that ties and abstentions are met."""
    keys = rng.normal(0, 1, (slots, dim)).astype(F32)
    keys[rng.integers(0, slots, slots // 2)] = keys[0]
    keys[rng.random(slots) < 0.1] = 0
    opposed = np.triu(rng.random((slots, slots)) < 0.5, 1)
    norms = np.sqrt(ordered_sum(keys * keys))
    return Snapshot(
        center=rng.normal(0, 1, dim).astype(F32),
        keys=keys,
        norms=norms,
        eligible=((rng.random(slots) < 0.8) & (norms > 0)).astype(np.uint8),
        bonus=rng.choice(np.array([0, 0, 0.01, 0.05], F32), slots),
        disagree=(opposed | opposed.T).astype(np.uint8),
        shift=rng.normal(0, 1, (slots, dim)).astype(F32),
        threshold=F32(threshold),
    )


@pytest.mark.parametrize("dim", [2, 64, 70, 192])
@pytest.mark.parametrize("slots", [1, 2, 8, 21])
def test_retrieve(program, slots, dim):
    rng, n = np.random.default_rng(slots * 1000 + dim), 600
    bank = snapshot(rng, slots, dim, threshold=-0.1 if dim > 2 else 0.7)
    h = (bank.center + rng.normal(0, 1, (n, dim))).astype(F32)
    h[: n // 2] = bank.center + bank.keys[rng.integers(0, slots, n // 2)]
    h[0], h[1, 0], h[2, 0] = bank.center, np.nan, np.inf
    wide = -dim % 64
    with np.errstate(invalid="ignore"):
        centred = np.pad(h - bank.center, ((0, 0), (0, wide)))
        expected = retrieve_rows(bank, h)
    (seen,) = evaluate(
        program, "test_retrieve", n, centred, np.pad(bank.keys, ((0, 0), (0, wide))), bank.norms,
        bank.eligible, bank.bonus, bank.disagree, bank.threshold, np.int32(slots),
        np.int32(dim + wide), out=[np.empty(n, np.int32)],
    )  # fmt: skip
    np.testing.assert_array_equal(seen, expected)
    assert (seen[:3] == MISS).all() and (slots < 8 or {MISS, ABSTAIN} < set(seen.tolist()))
