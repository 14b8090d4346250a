"""skill_utility.cl and skill_judge.cl against backtest/agent/bank/utility.py and lifecycle.py.

The kernels bank_influence, bank_episodes, bank_solo, bank_uses and bank_close (with
bank_scalars) are also compared through `DeviceBank` in test_bank.py.
"""

import numpy as np
import pytest

from backtest.agent.bank import Bank, SlotState
from backtest.agent.bank import utility as definition
from backtest.agent.bank.lifecycle import close_collection
from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.records import SKILL
from backtest.agent.bank.state import COUNTERS
from opencl.bank import DeviceBank
from opencl.bank_program import bank_sizes
from opencl.bank_state import rules_record
from tests.opencl.bank_scenes import assert_same_banks, copy_of
from tests.opencl.wrapping import evaluate

WRAPPERS = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void test_influence(
    __global const float *before, __global const float *after, __global const float *shift,
    const int dim, const int trapezoid, __global float *out)
{
    __local float part[64];
    const int i = get_local_id(0), row = get_group_id(0) * dim;
    const float mine =
        influence_partial(before + row, after + row, shift + row, dim, i, trapezoid != 0);
    const float total = group_sum(part, i, mine);
    if (i == 0) {
        out[get_group_id(0)] = total;
    }
}

__kernel void test_accumulate(__global const float *influence, __global BankSkill *s,
                              __global int *accepted)
{
    const int i = get_global_id(0);
    accepted[i] = influence_accumulate(s + i, influence[i]);
}

__kernel void test_utility(const BankRules p, __global const BankSkill *s, const float delta,
                           __global float *weight, __global float *total, __global float *moved)
{
    const int n = get_global_id(0);
    total[n] = influence_total(&p, s);
    weight[n] = influence_weight(&p, s[n].influence);
    moved[n] = utility(&p, s[n].utility, s[n].influence, total[n], delta);
}

__kernel void test_end_episode(const BankRules p, __global const float *delta,
                               __global BankSkill *skills, __global long *counters)
{
    BankView b;
    b.skills = skills + get_global_id(0) * p.slots;
    b.counters = counters + get_global_id(0) * N_COUNTERS;
    end_episode(&p, &b, delta[get_global_id(0)]);
}

__kernel void test_solo_slot(const BankRules p, __global const float *mean,
                             __global const int *harmful, __global BankSkill *s,
                             __global int *moved, __global int *alive)
{
    const int i = get_global_id(0);
    moved[i] = solo_slot(&p, s + i, mean[i], harmful[i]);
    alive[i] = live(s + i);
}
"""
F32 = np.float32
RULES = ("solo", "participation", "original")


@pytest.fixture
def program(device, device_program):
    files = "skill_score.cl", "skill_metric.cl", "skill_utility.cl"
    return device_program(files, WRAPPERS, bank_sizes(device))


def drawn(seed, slots, **parameters):
    """Return a bank whose scalars are drawn, and its slots as device records."""
    bank = Bank(slots, 3, aggregate=1, candidate_pool=1, **parameters)
    rng, state = np.random.default_rng(seed), bank.state
    state.used[:] = rng.random(slots) < 0.8
    state.state[:] = rng.choice([2, 3, 4], slots) * state.used
    state.observations[:] = rng.integers(0, 6, slots) * state.used
    state.utility[:] = rng.uniform(-1, 1, slots) * state.used
    state.scale[:] = rng.choice(np.array([0.1, 0.2, 0.3], F32), slots) * state.used
    state.influence[:] = rng.normal(0, 1, slots) * (rng.random(slots) < 0.7)
    skills = np.zeros(slots, SKILL.dtype)
    for name in ("used", "state", "utility", "influence"):
        skills[name] = getattr(state, name)
    return bank, skills


@pytest.mark.parametrize("trapezoid", [True, False])
@pytest.mark.parametrize("dim", [1, 64, 200])
def test_influence_partial(program, dim, trapezoid):
    before, after, shift = np.random.default_rng(dim).normal(0, 1, (3, 9, dim)).astype(F32)
    (seen,) = evaluate(
        program, "test_influence", 9 * 64, before, after, shift, np.int32(dim),
        np.int32(trapezoid), out=[np.empty(9, F32)], group=64,
    )  # fmt: skip
    expected = definition.influence_of(before, after, shift, trapezoid=trapezoid)
    np.testing.assert_array_equal(seen, expected)


def test_influence_accumulate(program):
    skills = np.zeros(4, SKILL.dtype)
    skills["influence"] = 0.25
    influence = np.array([0.1, -3, np.nan, np.inf], F32)
    skills, accepted = evaluate(
        program, "test_accumulate", 4, influence, out=[skills, np.empty(4, np.int32)]
    )
    assert accepted.tolist() == [1, 1, 0, 0]
    expected = np.array([F32(0.25) + F32(0.1), -2.75, 0.25, 0.25], F32)
    np.testing.assert_array_equal(skills["influence"], expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("slots", [1, 5, 70])
def test_utility_influence_weight_and_influence_total(program, rule, slots):
    bank, skills = drawn(slots, slots, utility_rule=rule)
    skills["used"], bank.state.used[:] = 1, 1
    skills["state"], bank.state.state[:] = 3, 3
    delta = F32(0.4)
    weight, total, moved = evaluate(
        program, "test_utility", slots, rules_record(bank), skills, delta,
        out=[np.empty(slots, F32) for _ in range(3)],
    )  # fmt: skip
    influence = skills["influence"]
    expected = np.maximum(influence, 0) if rule == "original" else np.abs(influence)
    np.testing.assert_array_equal(weight, expected)
    np.testing.assert_array_equal(total, np.broadcast_to(ordered_sum(expected), slots))
    definition.RULES[rule](bank.state, bank.rules, delta)
    acted = expected > 0
    np.testing.assert_array_equal(moved[acted], bank.state.utility[acted])


@pytest.mark.parametrize("rule", RULES)
def test_end_episode(program, rule):
    """Deltas of both signs, too small ones, one that is no number; slots free and inactive."""
    deltas = np.array([0.3, -0.9, 0, 1e-13, np.nan, 1], F32)
    made = [drawn(seed, 12, utility_rule=rule) for seed in range(6)]
    made[5][0].state.influence[:] = made[5][1]["influence"] = 0  # nobody acted
    skills, counters = evaluate(
        program, "test_end_episode", 6, rules_record(made[0][0]), deltas,
        out=[np.stack([s for _, s in made]), np.zeros((6, len(COUNTERS)), np.int64)],
    )  # fmt: skip
    for i, (bank, _) in enumerate(made):
        bank.end_episode(deltas[i])
        np.testing.assert_array_equal(skills[i]["utility"], bank.state.utility)
        np.testing.assert_array_equal(counters[i], bank.state.counters)
        assert not skills[i]["influence"].any()
    names = ("utility_updates", "utility_skips")
    assert [sum(bank.counters[name] for bank, _ in made) for name in names] == [2, 4]


def test_solo_slot_and_live(program):
    bank, skills = drawn(7, 40)
    rng = np.random.default_rng(7)
    mean, harmful = rng.normal(0, 0.3, 40).astype(F32), rng.integers(0, 2, 40).astype(np.int32)
    mean[:3] = np.nan, 0, 1e-13
    seen, moved, alive = evaluate(
        program, "test_solo_slot", 40, rules_record(bank), mean, harmful,
        out=[skills.copy(), np.empty(40, np.int32), np.empty(40, np.int32)],
    )  # fmt: skip
    for i, s in enumerate(skills):
        taught = s["used"] and np.isfinite(mean[i]) and abs(mean[i]) > F32(1e-12)
        assert moved[i] == (1 if taught else -s["used"])
        rate = bank.rules.beta_utility * taught
        expected = s["utility"] + rate * (mean[i] - s["utility"]) if taught else s["utility"]
        assert seen["utility"][i] == expected
        sinks = taught and harmful[i] and s["state"] in (SlotState.PROTECTED, SlotState.ACTIVE)
        state = SlotState.INACTIVE if sinks else s["state"]
        assert seen["state"][i] == state
        assert alive[i] == (s["used"] and state in (SlotState.PROTECTED, SlotState.ACTIVE))


@pytest.mark.parametrize("slots", [1, 2, 7, 70])
def test_close_collection(device, slots):
    """Medians of odd and even counts with ties, and of none; bank_close of several banks."""
    banks = [drawn(seed, slots)[0] for seed in range(8)]
    banks[7].state.used[:] = banks[7].state.state[:] = 0
    for seed, bank in enumerate(banks):
        bank.state.h_mean[...] = 0.5 + seed
    on_device = DeviceBank(device, [copy_of(bank) for bank in banks])
    on_device.close_collection()
    for bank in banks:
        close_collection(bank.state, bank.rules)
    assert_same_banks(banks, on_device.read())
    assert banks[7].state.norm_ref == 0 and any(bank.state.norm_ref > 0 for bank in banks[:7])
