"""Functions of skill_metric.cl, skill_update.cl and skill_cells.cl against the definition."""

import numpy as np
import pytest

from backtest.agent.bank import MISS, Bank, SlotState
from backtest.agent.bank import update as definition
from backtest.agent.bank.lifecycle import tick
from backtest.agent.bank.ordered import ordered_sum, square
from backtest.agent.bank.records import HEAD, SKILL
from backtest.agent.bank.state import COUNTERS
from opencl.bank_program import FILES, bank_sizes
from opencl.bank_state import rules_record
from opencl.buffers import empty, upload
from tests.opencl.wrapping import assert_same_records, evaluate

WRAPPERS = """
__kernel void test_known_cosine(__global const float *dot_, __global const float *a,
                                __global const float *b, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = known_cosine(dot_[i], a[i], b[i]);
}

__kernel void test_age_lifecycle(const BankRules p, __global const BankSkill *s,
                                 __global const int *candidate, __global BankSkill *out,
                                 __global BankSkill *none)
{
    const int i = get_global_id(0);
    out[i] = age_lifecycle(&p, s[i], candidate[i] != 0);
    none[i] = no_skill();
}

__kernel void test_scalars(const BankRules p, __global const float *x, __global const float *y,
                           __global float *scale, __global float *factor)
{
    const int i = get_global_id(0);
    scale[i] = scale_ema(&p, x[i], y[i]);
    factor[i] = clip_factor(&p, y[i]);
}

__kernel void test_too_small(__global const float *size, __global BankHead *head,
                             __global int *out)
{
    const int i = get_global_id(0);
    out[i] = too_small(head + i, size[i]);
}

__kernel void test_intake(__global const float *sums, __global BankHead *head,
                          __global long *counters, __global int *out)
{
    BankView b; // sums [n][3]: size, xx, gg
    b.head = head;
    b.counters = counters;
    for (int i = 0; i < 40; i++) {
        out[i] = intake(&b, sums[3 * i], sums[3 * i + 1], sums[3 * i + 2]);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void test_leaders(
    const BankRules p, __global const BankSkill *skills, __global const float *key,
    __global const float *way, const float threshold, __global int *out)
{
    const int all = p.slots + p.pool;
    __local float my_key[64], my_way[64];
    const int i = get_global_id(0); // one bank
    for (int r = 0; r < all; r++) {
        my_key[r] = key[i * all + r];
        my_way[r] = way[i * all + r];
    }
    const float t = threshold, d = p.direction_threshold;
    out[3 * i] = candidate_leader(skills + i * all, my_key, my_way, 0, p.slots, t, d);
    out[3 * i + 1] = candidate_leader(skills + i * all, my_key, my_way, p.slots, all, t, -INFINITY);
    out[3 * i + 2] = promotion_target(&p, skills + i * all);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void test_metrics(
    __global const float *rows, __global const float *x, const int dim, const int count,
    __global float *out)
{
    __local float part[CHUNK * PART_ROW] __attribute__((aligned(16)));
    __local float sum[128];
    Work w;
    w.part = part;
    metric_rows(&w, rows, x, dim, count, sum);
    for (int r = get_local_id(0); r < count; r += ITEMS) {
        out[r] = sum[r];
    }
    fence();
    metric_squares(&w, x, dim, rows, dim, sum);
    if (get_local_id(0) == 0) {
        out[count] = sum[0];
        out[count + 1] = sum[1];
    }
    fence();
    for (int i = get_local_id(0); i < 64; i += ITEMS) {
        part[i] = metric_partial(x, rows, dim, i);
    }
    metric_total(&w, 1, sum);
    if (get_local_id(0) == 0) {
        out[count + 2] = sum[0];
    }
}
"""
F32 = np.float32


@pytest.fixture
def program(device, device_program):
    return device_program(FILES[:4], WRAPPERS, bank_sizes(device))  # without kernels


def test_known_cosine(program):
    rng, n = np.random.default_rng(0), 2000
    a, b = np.exp(rng.normal(-20, 20, (2, n))).astype(F32)
    dot = (np.sqrt(a) * np.sqrt(b) * rng.uniform(-1, 1, n)).astype(F32)
    (seen,) = evaluate(program, "test_known_cosine", n, dot, a, b, out=[np.empty(n, F32)])
    known = (a >= F32(1e-12)) & (b >= F32(1e-12))
    expected = np.where(known, dot / np.where(known, np.sqrt(a) * np.sqrt(b), 1), F32(-2))
    np.testing.assert_array_equal(seen, expected.astype(F32))
    assert known.any() and (~known).any()


def random_skills(rng, n, candidate=False):
    s = np.zeros(n, SKILL.dtype)
    s["used"] = rng.integers(0, 2, n)
    s["state"] = rng.choice([2, 3, 4], n) * s["used"] * (not candidate)
    s["age"], s["protection"] = rng.integers(0, 9, n), rng.integers(0, 3, n)
    s["retrieved"], s["clock"] = rng.integers(0, 2, n), rng.integers(0, 6, n) * s["used"]
    s["utility"], s["scale"] = rng.uniform(-1.5, 1.5, n), rng.random(n)
    s["streak"] = rng.integers(1, 4, n) * s["used"]
    return s


def test_age_lifecycle_and_no_skill(program):
    """tick on states of one slot and one candidate each."""
    rng, n = np.random.default_rng(1), 400
    bank = Bank(n, 1, inactivity_age=6, candidate_ttl=4, candidate_pool=n, aggregate=1)
    slots, pool = random_skills(rng, n), random_skills(rng, n, candidate=True)
    state = bank.state
    for name in ("used", "state", "age", "protection", "retrieved"):
        getattr(state, name)[:] = slots[name]
    state.pool_used[:], state.pool_clock[:] = pool["used"], pool["clock"]
    tick(state, bank.rules)
    given = np.concatenate([slots, pool])
    candidate = (np.arange(2 * n) >= n).astype(np.int32)
    seen, none = evaluate(
        program, "test_age_lifecycle", 2 * n, rules_record(bank), given, candidate,
        out=[np.empty(2 * n, SKILL.dtype), np.ones(2 * n, SKILL.dtype)],
    )  # fmt: skip
    for name in ("used", "state", "age", "protection", "retrieved"):
        np.testing.assert_array_equal(seen[name][:n], getattr(state, name), err_msg=name)
    np.testing.assert_array_equal(seen["used"][n:], state.pool_used)
    np.testing.assert_array_equal(seen["clock"][n:], state.pool_clock)
    expired = (pool["used"] == 1) & (state.pool_used == 0)
    assert expired.any()
    assert_same_records(np.zeros(int(expired.sum()), SKILL.dtype), seen[n:][expired])
    assert_same_records(np.zeros(2 * n, SKILL.dtype), none)


def test_scale_ema_and_clip_factor(program):
    bank = Bank(1, 1, max_correction=0.7)
    rng, rules = np.random.default_rng(2), bank.rules
    x, y = rng.exponential(0.7, (2, 500)).astype(F32)
    scale, factor = evaluate(
        program, "test_scalars", 500, rules_record(bank), x, y,
        out=[np.empty(500, F32), np.empty(500, F32)],
    )  # fmt: skip
    mixed = rules.keep_magnitude * x + rules.beta_magnitude * y
    np.testing.assert_array_equal(scale, np.minimum(mixed, rules.max_correction))
    long = y > rules.max_correction
    np.testing.assert_array_equal(factor, np.where(long, rules.max_correction / y, F32(1)))
    assert long.any() and (mixed > 0.7).any()


def test_too_small(program):
    """The first size, the same again, one far below, and sizes around the limit."""
    before = np.array([0, 1, 1, 1, 1], F32)
    size = np.array([0.5, 1, 1e-5, 1e-3, 9.999e-4], F32)
    head = np.zeros(5, HEAD.dtype)
    head["norm_ema"] = before
    head, small = evaluate(program, "test_too_small", 5, size, out=[head, np.empty(5, np.int32)])
    for i in range(5):
        state = Bank(1, 1).state
        state.norm_ema[...] = before[i]
        assert small[i] == definition.too_small(state, size[i])
        assert head["norm_ema"][i] == state.norm_ema
    assert small.tolist() == [0, 0, 1, 0, 1]


def test_intake(program):
    sums = np.random.default_rng(3).exponential(1, (40, 3)).astype(F32)
    sums[3, 0], sums[5, 1], sums[9, 2], sums[12, 2] = np.inf, np.nan, np.inf, 0
    head, counters, out = evaluate(
        program, "test_intake", 1, sums,
        out=[np.zeros(1, HEAD.dtype), np.zeros(len(COUNTERS), np.int64), np.empty(40, np.int32)],
    )  # fmt: skip
    assert np.flatnonzero(out == 0).tolist() == [3, 5, 9]
    mean, count = F32(0), 0
    for size in np.delete(sums[:, 0], [3, 5, 9, 12]):
        count += 1
        mean += (size - mean) / F32(count)
    assert head["h_mean"][0] == mean and head["h_count"][0] == count == 36
    assert dict(zip(COUNTERS, counters.tolist(), strict=True))["non_finite"] == 3


def test_candidate_leader_and_promotion_target(program):
    rng, n = np.random.default_rng(4), 300
    bank = Bank(5, 1, candidate_pool=3, direction_threshold=0.2, aggregate=1)
    skills = random_skills(rng, n * 8).reshape(n, 8)
    skills["used"][: n // 2] = 1  # full banks
    skills["state"][: n // 2] = rng.choice([2, 3, 4], (n // 2, 8))
    key, way = rng.choice(np.array([-2, 0.1, 0.5, 0.6, 0.9], F32), (2, n, 8))
    (out,) = evaluate(
        program, "test_leaders", n, rules_record(bank), skills, key, way, F32(0.5),
        out=[np.empty((n, 3), np.int32)], group=1,
    )  # fmt: skip
    for i in range(n):
        used = skills["used"][i] == 1
        near = used & (key[i] >= F32(0.5))
        slot = definition.best(key[i, :5], (near & (way[i] >= F32(0.2)))[:5])
        place = definition.best(key[i, 5:], near[5:])
        assert out[i, 0] == slot and out[i, 1] == (place + 5 if place >= 0 else MISS)
        idle = (skills["state"][i] == SlotState.INACTIVE) & (skills["protection"][i] == 0)
        aged = np.minimum(F32(1e-4) * skills["age"][i].astype(F32), F32(0.5))
        worth = aged - np.clip(skills["utility"][i], F32(-1), F32(1))
        free = np.flatnonzero(~used[:5])
        assert out[i, 2] == (free[0] if len(free) else definition.best(worth[:5], idle[:5]))
    assert (out[:, 2] == MISS).any() and (out[: n // 2, 2] >= 0).any()


@pytest.mark.parametrize("dim, count", [(1, 1), (64, 3), (70, 40), (300, 65)])
def test_metrics(program, dim, count):
    """metric_rows, metric_squares, metric_partial and metric_total are ordered sums."""
    rng, device = np.random.default_rng(dim), program.device
    rows, x = rng.normal(0, 1, (count, dim)).astype(F32), rng.normal(0, 1, dim).astype(F32)
    out = empty(device, count + 3, F32)
    size = bank_sizes(device)["ITEMS"]
    program.kernel("test_metrics")(
        device.queue, (size,), (size,), upload(device, rows).buffer, upload(device, x).buffer,
        np.int32(dim), np.int32(count), out.buffer,
    )  # fmt: skip
    expected = [*ordered_sum(rows * x), square(x), square(rows[0]), ordered_sum(rows[0] * x)]
    np.testing.assert_array_equal(out.read(), np.array(expected, F32))
