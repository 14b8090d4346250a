"""The scenario rollout against its NumPy oracle, with and without skill banks.

`lanes` is the CPU's kernel, `group` the GPU's; every device runs both.
"""

from dataclasses import replace

import numpy as np
import pytest

from backtest import rng
from backtest.agent.actions import SPANS
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.agent.explore import choose
from backtest.market.layout import N_ACTIONS, End
from backtest.market.rough import rough_bars
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions
from opencl.rollout import PolicySkills, Rollout, rollout_program
from tests.opencl.rollout.scene import (
    BARS,
    BRANCHES,
    NETWORK,
    RECORD,
    START,
    STEPS,
    STREAM,
    VARIANTS,
    E,
    Scene,
    same,
    shape_of,
)
from tests.opencl.wrapping import assert_same_records

Q_TOLERANCE, AGREEMENT = 1e-5, 0.995
STACKED = NETWORK.model_copy(update={"stack_size": 3, "top_k": 2, "horizon": 5, "latent": 8})


@pytest.fixture(scope="module", autouse=True)
def small_tiles_on_cpus(device):
    """A CPU's compiler needs long for the GPU's tile."""
    rollout_program.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        if device.kind == "cpu":
            patch.setattr("opencl.rollout.sizes.TILE", 8)
        yield
    rollout_program.cache_clear()


@pytest.fixture(scope="module", params=["lanes", "group"])
def variant(request):
    return request.param


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


def check_values(seen, slots, values):
    """Action values where the banks retrieved what NumPy's did, and how often they did."""
    living = seen.end != End.DEAD
    agree = (slots == seen.slots).all(axis=-1)
    assert agree[living].mean() >= AGREEMENT
    known = np.logical_and.accumulate(agree | ~living, axis=0)  # a stack remembers a difference
    limit = Q_TOLERANCE * np.abs(values).max()
    np.testing.assert_allclose(seen.values[known], values[known], atol=limit, rtol=0)


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
    if variant == "lanes":
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


FEW = {"policies": slice(2, 4), "episodes": slice(0, 4)}  # step, both


@pytest.mark.parametrize("bars", [STEPS + 60, STEPS // 2, 2])
def test_a_small_budget_changes_nothing(device, variant, run, scene, bars):
    """Tables of fewer bars: episodes in groups, and walks that are cut in time."""
    whole = scene.launch(run, **FEW)
    budget = bars * (whole.planned // BARS)
    launch = scene.launch(scene.rollout(device, variant, budget=budget), **FEW)
    assert launch.planned <= budget and len(launch.events) > 1
    same(whole.read(), launch.read())


def test_both_kernels_do_the_same(device, scene):
    a, b = (scene.play(scene.rollout(device, variant)) for variant in ("lanes", "group"))
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


@pytest.fixture(scope="module")
def stacked():
    return Scene(STACKED)


@pytest.fixture(scope="module")
def seen_stacked(device, variant, stacked):
    return stacked.play(stacked.rollout(device, variant))


def test_a_stack_and_the_best_tokens_equal_numpy(stacked, seen_stacked):
    check_values(seen_stacked, *stacked.expected(seen_stacked))


def test_a_stack_survives_a_cut_walk(device, variant, stacked):
    whole = stacked.launch(stacked.rollout(device, variant), **FEW)
    budget = 12 * (whole.planned // BARS)
    launch = stacked.launch(stacked.rollout(device, variant, budget=budget), **FEW)
    assert len(launch.events) > 3
    same(whole.read(), launch.read())
