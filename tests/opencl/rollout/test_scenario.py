"""The scenario rollout against its NumPy oracle, with and without skill banks.

`lanes` is the CPU's kernel, `group` the GPU's.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest import rng
from backtest.agent.actions import SPANS
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.agent.explore import choose
from backtest.agent.random_policy import random_policy
from backtest.errors import DeviceError
from backtest.market.layout import N_ACTIONS, End
from backtest.market.rough import rough_bars
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions
from opencl.devices import all_devices
from opencl.rollout import PolicySkills, Rollout, Shape
from tests.opencl.rollout.scene import (
    AGREEMENT,
    BARS,
    BRANCHES,
    FEW,
    NETWORK,
    Q_TOLERANCE,
    RECORD,
    START,
    STEPS,
    STREAM,
    VARIANTS,
    E,
    Scene,
    check_values,
    same,
    shape_of,
)
from tests.opencl.wrapping import assert_same_records

FIRST = all_devices()[0]
# compiling takes seconds: one device runs both kernels, the others theirs
CASES = [*((device, "lanes") for device in all_devices()), (FIRST, "group")]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0].platform[:5]}-{case[1]}")
def case(request):
    return request.param


@pytest.fixture(scope="module")
def device(case):
    return case[0]


@pytest.fixture(scope="module")
def variant(case):
    return case[1]


@pytest.fixture(scope="module")
def scene():
    return Scene()


@pytest.fixture(scope="module")
def run(device, variant, scene):
    return scene.rollout(device, variant)


@pytest.fixture(scope="module")
def seen(run, scene):
    """All variants of both policies."""
    return scene.play(run)


def test_slots_values_and_choices_equal_numpy(scene, seen):
    slots, values = scene.expected(seen)
    check_values(seen, slots, values)
    found = seen.slots[seen.end != End.DEAD]
    for bank in range(2):  # every outcome of a search occurred
        assert {MISS, ABSTAIN} < set(found[:, bank]) and len(set(found[:, bank])) > 4
    assert (seen.slots[seen.end == End.DEAD] == MISS).all()
    n = len(seen.start)
    t, episode = np.divmod(np.arange(STEPS * n), n)
    every = np.zeros((STEPS * n, N_ACTIONS), np.float32)
    every[:, scene.shape.heads] = values.reshape(STEPS * n, -1)
    wanted = choose(
        every, BRANCHES, 0.2, scene.keys[0], rng.Stage.COLLECT, 3, episode % E, t
    ).reshape(STEPS, n, 4)
    living = seen.end != End.DEAD
    assert (wanted[living] == seen.action[living]).all(axis=-1).mean() >= AGREEMENT
    walk = walk_actions(scene.tape, seen.start, seen.action)
    assert_same_records(walk.result, seen.trace)


def test_banks_that_are_not_there_retrieve_nothing_and_those_there_matter(scene, seen):
    parts = {name: slice(i * E, (i + 1) * E) for i, name in enumerate(VARIANTS)}
    has = {"none": (), "task": (0,), "step": (1,), "both": (0, 1), "features": (1,)}
    for name, banks in has.items():
        found = seen.slots[:, parts[name]]
        for bank in range(2):
            assert (found[..., bank] >= 0).any() == (bank in banks)


def test_one_bank_alone_is_that_bank_of_a_pair_until_they_part(run, scene, seen):
    """On equal episodes the step bank finds the same with and without a task bank beside it."""
    start = np.repeat(scene.start[:1], 2, 0)
    skills = [scene.skills[2], scene.skills[3]]
    out = run.run(
        scene.policies[2:4], start, STEPS, scene.keys[:2], stage_round=STREAM,
        skills=skills, slots=True,
    )  # fmt: skip
    alive = (out.end[:, :E] != End.DEAD) & (out.end[:, E:] != End.DEAD)
    np.testing.assert_array_equal(out.slots[:, :E, 1][alive], out.slots[:, E:, 1][alive])


def test_without_skills_every_bit_stays(device, variant, run, scene, seen):
    """Beside policies with skills, in a launch without, and in a program without a search."""
    bare = scene.play(run, skills=None)
    for i in (0, 5):
        same(seen, bare, slice(i * E, (i + 1) * E), slice(i * E, (i + 1) * E))
    assert (bare.slots == MISS).all()
    nothing = scene.play(run, skills=[PolicySkills()] * len(scene.policies))
    same(bare, nothing)
    if (device, variant) == CASES[0]:
        same(bare, scene.play(scene.rollout(device, variant, shape_of(NETWORK, slots=0)), None))


def test_a_snapshot_without_live_slots_changes_nothing(run, scene):
    none = np.zeros(6, np.uint8)
    banks = [
        skills and PolicySkills(skills.task and replace(skills.task, eligible=none))
        for skills in scene.skills
    ]
    same(scene.play(run, skills=None), scene.play(run, skills=banks))


def test_twice_the_same(run, scene, seen):
    same(seen, scene.play(run))


@pytest.mark.parametrize("bars", [STEPS + 60, STEPS // 2, 2])
def test_a_small_budget_changes_nothing(device, variant, run, scene, bars):
    """Tables of fewer bars: episodes in groups, and walks that are cut in time."""
    whole = scene.launch(run, **FEW)
    budget = bars * (whole.planned["tables"] // BARS)
    launch = scene.launch(scene.rollout(device, variant, budget=budget), **FEW)
    assert launch.planned["tables"] <= budget and len(launch.events) > 1
    same(whole.read(), launch.read())


def test_both_kernels_do_the_same(scene):
    a, b = (scene.play(scene.rollout(FIRST, variant)) for variant in ("lanes", "group"))
    agree = (a.action == b.action).all(axis=-1) & (a.slots == b.slots).all(axis=-1)
    assert agree.mean() >= AGREEMENT
    together = np.logical_and.accumulate(agree, axis=0)
    np.testing.assert_array_equal(a.reward[together], b.reward[together])
    limit = Q_TOLERANCE * np.abs(a.values).max()
    np.testing.assert_allclose(a.values[together], b.values[together], atol=limit, rtol=0)


def test_no_decision_sees_beyond_its_bar(device, variant, run, scene):
    cut = 12
    first = np.full((2, E), START)
    asked = {"stage_round": STREAM, "skills": scene.skills[3:5], **RECORD}
    before = run.run(scene.policies[3:5], first, STEPS, scene.keys[:2], **asked)
    bars, aux = rough_bars(BARS, 77)
    bars[:cut], aux[:cut] = scene.tape.bars[:cut], scene.tape.aux[:cut]
    states = np.concatenate([scene.x[:cut], scene.x[cut:] + 1])
    changed = Tape(START, bars, scene.tape.params, aux)
    other = Rollout(device, changed, states, scene.shape, variant)
    after = other.run(scene.policies[3:5], first, STEPS, scene.keys[:2], **asked)
    for name in ("action", "values", "slots"):
        np.testing.assert_array_equal(getattr(before, name)[:cut], getattr(after, name)[:cut])
    assert (before.values[cut] != after.values[cut]).all()


def test_the_forecast_goes_around_the_network(device, variant, run, scene):
    """Slot 121 moves the direction values by alpha times its change, and nothing else."""
    column = 112
    states = scene.x.copy()
    states[:, column] += 0.5
    other = Rollout(device, scene.tape, states, scene.shape, variant)
    asked = {"stage_round": STREAM, "values": True}
    few = scene.policies[:1], scene.start[:1], 1, scene.keys[:1]
    a, b = (r.run(*few, **asked).values[0] for r in (run, other))
    n = SPANS[0][1]
    moved = np.tile(0.5 * scene.weights[0].alpha, (E, 1))
    np.testing.assert_allclose(b[:, :n] - a[:, :n], moved, atol=1e-5)
    np.testing.assert_array_equal(b[:, n:], a[:, n:])


@pytest.mark.parametrize("bars, message", [(0, "budget"), (1, "")])
def test_a_budget_below_one_bar_is_refused(device, variant, run, scene, bars, message):
    bytes_of_a_bar = scene.launch(run, **FEW).planned["tables"] // BARS
    tight = scene.rollout(device, variant, budget=max(bars * bytes_of_a_bar, 9))
    if message:
        with pytest.raises(DeviceError, match=r"tables of one bar take .* the budget is 9; use"):
            scene.launch(tight, **FEW)
    else:
        assert len(scene.launch(tight, skills=[None, None], **FEW).events) >= STEPS


def test_more_than_the_device_holds_is_refused_before_it_is_allocated(device, variant, scene):
    run = scene.rollout(device, variant, budget=10**7)
    run.device = replace(device, global_memory=10**5)
    with pytest.raises(DeviceError, match=r"outputs .* planned, there are 97.7 KiB; use fewer"):
        scene.launch(run)


def test_paired_variants_share_tables(run, scene):
    """None and task only read one table; a bank of steps makes its own."""
    one = scene.launch(run, policies=slice(0, 1)).planned["tables"]
    two = scene.launch(run, policies=slice(0, 2)).planned["tables"]
    three = scene.launch(run, policies=slice(0, 3)).planned["tables"]
    assert one == two < three < 2 * one


def test_counts_and_kinds_that_do_not_fit_are_refused(run, scene):
    with pytest.raises(ValueError, match="skills of 1 policies for 10"):
        scene.launch(run, skills=[None])
    mlp = Rollout(FIRST, scene.tape, scene.x, Shape((18, 14), 11, BRANCHES), "lanes")
    policy = [random_policy((18, 14), 11)]
    few = policy, scene.start[:1], 2, scene.keys[:1]
    for skills in (scene.skills[1:2], scene.skills[2:3]):
        with pytest.raises(ValueError, match="scenario network"):
            mlp.launch(*few, stage_round=0, skills=skills)
