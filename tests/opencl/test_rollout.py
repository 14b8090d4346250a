"""All rollout kernels against NumPy: network, choice, market, and what must not matter.

`rollout_lanes` is the CPU's kernel, `rollout_group` the GPU's; every device runs both, and the
latter with layers for tensor cores where there are any, or where they can be emulated.
"""

import numpy as np
import pytest

from backtest import rng
from backtest.agent.actions import SPANS
from backtest.agent.explore import choose
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, forward
from backtest.errors import DeviceError
from backtest.market.layout import (
    BRANCHES,
    N_ACTIONS,
    N_PORTFOLIO,
    End,
    Fill,
    Formula,
    Order,
)
from backtest.market.portfolio import portfolio_state
from backtest.market.rough import rough_bars, rough_params, rough_tape
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions
from opencl.market import MarketRules
from opencl.rollout import Rollout, RolloutProgram, Shape, rollout_program
from opencl.tensor_probe import has_tensor_cores
from tests.opencl import emulation
from tests.opencl.wrapping import assert_same_records

START, BARS, STEPS, E = 100, 300, 40, 37  # 37: more than one tile of either kernel, none whole
HIDDEN, ATOMS = (24, 30), 11  # 30: not a multiple of 4
Q_TOLERANCE, AGREEMENT = 1e-5, 0.995
# bf16 keeps eight bits, so each weight and activation is off by up to 2^-9 of itself. Of the
# largest value, the standard network (128-128, 51 atoms) measured 0.0115 at most and 0.001 in the
# mean on an H200; the smallest of these networks, rounded likewise in NumPy, 0.03 at most.
BF16_TOLERANCE = 0.06
ALL = tuple(BRANCHES)
KEYS = np.stack([rng.key(seed, "X", "2001") for seed in range(2)])
STAGE, ROUND = rng.Stage.COLLECT, 3
STREAM = int(rng.stream(STAGE, ROUND))
RECORD = {"portfolio": True, "trace": True, "values": True}


@pytest.fixture(params=["lanes", "group", "tensor"])
def variant(request, device, monkeypatch):
    if request.param == "tensor":
        if device not in emulation.DEVICES:
            pytest.skip("needs an NVIDIA GPU's tensor cores, or Intel's runtime to emulate them")
        if not has_tensor_cores(device):
            monkeypatch.setattr("opencl.programs.read", emulation.emulated)
    return request.param


def tolerance(variant):
    return BF16_TOLERANCE if variant == "tensor" else Q_TOLERANCE


@pytest.fixture(autouse=True, scope="module")
def small_tiles_on_cpus(device):
    """A CPU's compiler compiles a smaller tile than the GPU's faster."""
    rollout_program.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        if device.kind == "cpu":
            patch.setattr("opencl.rollout.sizes.TILE", 16)
            patch.setattr("opencl.rollout.sizes.TENSOR_TILE", 32)
        yield
    rollout_program.cache_clear()


def scene(formula=Formula.CALIBRATED, seed=1):
    """Return (tape, bar states) of rough bars from bar 100."""
    tape = rough_tape(rough_params(formula, Fill.NEXT_OPEN), BARS, seed, START)
    return tape, np.random.default_rng(seed).normal(0, 1, (BARS, N_BAR)).astype(np.float32)


def starts(policies=2, episodes=E, seed=1):
    draw = np.random.default_rng(seed)
    return draw.integers(START, START + BARS - STEPS, (policies, episodes))


def made(device, variant, scene_=None, branches=ALL, hidden=HIDDEN, atoms=ATOMS):
    tape, x = scene_ or scene()
    return Rollout(device, tape, x, Shape(hidden, atoms, branches), variant)


def policies(n=2, hidden=HIDDEN, atoms=ATOMS):
    return [random_policy(hidden, atoms, seed, alpha=0.3) for seed in range(n)]


def action_values(run, weights, seen):
    """NumPy's action values of the learned heads on the device's own portfolio states."""
    bars = seen.start + np.arange(STEPS)[:, None] - START
    x = np.asarray(run.x.read())[bars]
    each = len(seen.start) // len(weights)
    parts = []
    for i, policy in enumerate(weights):
        mine = slice(i * each, (i + 1) * each)
        rows = x[:, mine].reshape(-1, N_BAR), seen.portfolio[:-1, mine].reshape(-1, N_PORTFOLIO)
        parts.append(forward(policy, *rows).reshape(STEPS, each, N_ACTIONS))
    return np.concatenate(parts, axis=1)


def same(a, b, episodes_a=slice(None), episodes_b=slice(None), steps=slice(None)):
    """Every array of two trajectories is equal, bit for bit."""
    for name in ("action", "reward", "equity", "end", "values"):
        mine, other = (getattr(t, name)[steps, e] for t, e in ((a, episodes_a), (b, episodes_b)))
        np.testing.assert_array_equal(mine, other, err_msg=name)
    assert_same_records(a.trace[steps, episodes_a], b.trace[steps, episodes_b])
    np.testing.assert_array_equal(
        a.portfolio[:-1][steps, episodes_a], b.portfolio[:-1][steps, episodes_b]
    )


@pytest.mark.parametrize("formula", Formula)
def test_rollout_equals_numpy(device, variant, formula):
    run, weights = made(device, variant, scene(formula)), policies()
    seen = run.run(weights, starts(), STEPS, KEYS, stage_round=STREAM, epsilon=0.2, **RECORD)
    # the market, exactly, given the device's actions
    walk = walk_actions(run.tape, seen.start, seen.action)
    assert_same_records(walk.result, seen.trace)
    for column, name in (("reward", "reward"), ("equity", "equity"), ("end", "end")):
        np.testing.assert_array_equal(getattr(seen, column), walk.result[name])
    # what the policy knew of its account
    bars = seen.start + np.arange(STEPS + 1)[:, None]
    known = [
        portfolio_state(run.tape.params, walk.state[t], run.tape.at(bars[t]), np.full(2 * E, t))
        for t in range(STEPS + 1)
    ]
    np.testing.assert_allclose(seen.portfolio, np.stack(known), atol=1e-6)
    # what it thought of its actions; tensor cores take the account by portfolio_pair
    q = action_values(run, weights, seen)
    np.testing.assert_allclose(seen.values, q, atol=tolerance(variant) * np.abs(q).max(), rtol=0)
    # and what it chose
    t, episode = np.divmod(np.arange(STEPS * 2 * E), 2 * E)
    policy, episode = np.divmod(episode, E)
    wanted = choose(
        q.reshape(-1, N_ACTIONS), ALL, 0.2, KEYS[policy], STAGE, ROUND, episode, t
    ).reshape(STEPS, 2 * E, 4)
    living = seen.end != End.DEAD
    right = wanted[living] == seen.action[living]
    # of whole actions; bf16 of single decisions, an action makes four
    assert (right if variant == "tensor" else right.all(axis=-1)).mean() >= AGREEMENT


@pytest.mark.parametrize("branches", [("direction",), ("direction", "magnitude"), ALL], ids=len)
def test_only_learned_branches_act(device, variant, branches):
    run, weights = made(device, variant, branches=branches), policies()
    seen = run.run(weights, starts(), STEPS, KEYS, stage_round=0, epsilon=0.0, **RECORD)
    living = seen.end != End.DEAD
    actions = seen.action[living]
    fixed = {"magnitude": 2, "order": Order.MARKET, "urgency": 2}
    at = 0
    for place, (name, (first, stop)) in enumerate(zip(BRANCHES, SPANS, strict=True)):
        if name in branches:
            size = stop - first
            greedy = seen.values[living][:, at : at + size].argmax(1)
            np.testing.assert_array_equal(actions[:, place], greedy)
            at += size
        else:
            assert (actions[:, place] == fixed[name]).all()
    assert at == seen.values.shape[2] == len(run.made.shape.heads)


def test_all_kernels_do_the_same(device, variant):
    """Those of float32 add in the same order; only exp may differ by an ulp."""
    weights, first = policies(), starts()
    settings = {"stage_round": STREAM, "epsilon": 0.1} | RECORD
    a, b = (
        made(device, kernel).run(weights, first, STEPS, KEYS, **settings)
        for kernel in ("lanes" if variant == "group" else "group", variant)
    )
    # bf16 decides near ties otherwise, and what follows such a step is another episode
    assert variant == "tensor" or (a.action == b.action).all(axis=-1).mean() >= AGREEMENT
    # until the first different action of an episode, everything agrees
    together = np.logical_and.accumulate((a.action == b.action).all(axis=-1), axis=0)
    np.testing.assert_array_equal(a.reward[together], b.reward[together])
    limit = tolerance(variant) * np.abs(a.values).max()
    np.testing.assert_allclose(a.values[together], b.values[together], atol=limit, rtol=0)


def test_twice_the_same(device, variant):
    run, weights = made(device, variant), policies()
    a, b = (
        run.run(weights, starts(), STEPS, KEYS, stage_round=STREAM, epsilon=0.5, **RECORD)
        for _ in range(2)
    )
    for name in ("action", "reward", "equity", "end", "values", "portfolio", "trace"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes()


def test_what_runs_beside_does_not_matter(device, variant):
    """Alone, among 37, or under the second policy: the same episode has the same bits."""
    run, weights, first = made(device, variant), policies(), starts(1)
    settings = {"stage_round": STREAM, "epsilon": 0.3} | RECORD
    batch = run.run(weights[:1], first, STEPS, KEYS[:1], **settings)
    alone = run.run(weights[:1], first[:, :1], STEPS, KEYS[:1], **settings)
    same(batch, alone, slice(0, 1))
    few = run.run(weights[:1], first[:, :20], STEPS, KEYS[:1], **settings)
    same(batch, few, slice(0, 20))
    both = run.run(weights[::-1], np.repeat(first, 2, 0), STEPS, KEYS[::-1], **settings)
    same(batch, both, slice(None), slice(E, None))


def test_key_round_and_episode_make_the_exploration(device, variant):
    """In a group, `draw_group` draws for the items that walk the market."""
    run, weights, first = made(device, variant), policies(1), np.full((1, E), START)
    base = run.run(weights, first, STEPS, KEYS[:1], stage_round=STREAM, epsilon=1.0)
    assert len(np.unique(base.action[0], axis=0)) > 10  # episodes differ
    for key, stream in ((KEYS[1:], STREAM), (KEYS[:1], STREAM + 1)):
        other = run.run(weights, first, STEPS, key, stage_round=stream, epsilon=1.0)
        assert (other.action != base.action).any(axis=-1).mean() > 0.9


def test_records_that_were_not_asked_for_change_nothing(device, variant):
    run, weights = made(device, variant), policies()
    full = run.run(weights, starts(), STEPS, KEYS, stage_round=STREAM, epsilon=0.2, **RECORD)
    bare = run.run(weights, starts(), STEPS, KEYS, stage_round=STREAM, epsilon=0.2)
    assert bare.trace is None and bare.values is None and bare.portfolio is None
    for name in ("action", "reward", "equity", "end"):
        np.testing.assert_array_equal(getattr(full, name), getattr(bare, name))


def test_ruin_ends_an_episode(device, variant):
    p = rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN)
    p["initial_capital"] = 6.0
    bars, aux = rough_bars(BARS, 1)
    run = made(device, variant, (Tape(START, bars, p, aux), scene()[1]))
    seen = run.run(policies(), starts(), STEPS, KEYS, stage_round=0, epsilon=1.0, trace=True)
    ruined = seen.end == End.TERMINATED
    assert ruined.any(axis=0).sum() > 10
    assert (ruined.sum(axis=0) <= 1).all()
    after = np.vstack([np.zeros((1, 2 * E), bool), np.logical_or.accumulate(ruined)[:-1]])
    assert (seen.end[after] == End.DEAD).all()
    assert not seen.action[after].any() and not seen.reward[after].any()
    assert_same_records(walk_actions(run.tape, seen.start, seen.action).result, seen.trace)
    whole = ~ruined.any(axis=0)
    assert (seen.end[-1, whole] == End.TRUNCATED).all()


@pytest.mark.parametrize("cut", [1, 20])
def test_no_decision_sees_beyond_its_bar(device, variant, cut):
    """All episodes start at bar 0 of the tape; everything from bar `cut` on is replaced."""
    tape, x = scene()
    first = np.full((2, E), START)
    settings = {"stage_round": STREAM, "epsilon": 0.2} | RECORD
    before = made(device, variant, (tape, x)).run(policies(), first, STEPS, KEYS, **settings)
    other, aux = rough_bars(BARS, 77)
    other[:cut], aux[:cut] = tape.bars[:cut], tape.aux[:cut]
    states = np.concatenate([x[:cut], x[cut:] + 1])
    changed = Tape(START, other, tape.params, aux)
    after = made(device, variant, (changed, states)).run(policies(), first, STEPS, KEYS, **settings)
    same(before, after, steps=slice(0, cut - 1))  # a step of bar b ends at bar b+1
    # the decision of bar cut-1 itself is also unchanged, only its outcome is not
    np.testing.assert_array_equal(before.action[cut - 1], after.action[cut - 1])
    np.testing.assert_array_equal(before.values[:cut], after.values[:cut])
    assert (before.trace["equity"][cut - 1] != after.trace["equity"][cut - 1]).any()
    assert (before.values[cut] != after.values[cut]).all()


def test_nothing_beyond_the_tape_reaches_the_device(device, variant):
    tape, x = scene()
    part = Tape(START, tape.bars[:60], tape.params, tape.aux[:60])
    run = made(device, variant, (part, x[:60]))
    assert run.rows.bars.buffer.size == 60 * 32
    assert run.x.buffer.size == 60 * N_BAR * 4
    settings = {"stage_round": 0}
    run.run(policies(1), np.array([[119]]), 40, KEYS[:1], **settings)  # earns bar 159, the last
    with pytest.raises(IndexError, match="leave the tape"):
        run.run(policies(1), np.array([[120]]), 40, KEYS[:1], **settings)
    with pytest.raises(IndexError, match="leave the tape"):
        run.run(policies(1), np.array([[99]]), 40, KEYS[:1], **settings)


def test_refuses_counts_and_shapes_that_do_not_fit(device):
    run = made(device, "lanes")
    with pytest.raises(ValueError, match="1 policies"):
        run.run(policies(1), starts(2), STEPS, KEYS, stage_round=0)
    with pytest.raises(ValueError, match="keys"):
        run.run(policies(2), starts(2), STEPS, KEYS[:1], stage_round=0)
    with pytest.raises(ValueError, match=r"hidden \(8, 8\)"):
        run.run(policies(1, hidden=(8, 8)), starts(1), STEPS, KEYS[:1], stage_round=0)
    with pytest.raises(ValueError, match="299 states"):
        Rollout(device, run.tape, np.zeros((299, N_BAR), np.float32), run.made.shape)


@pytest.mark.parametrize("hidden, atoms", [((19, 13), 12), ((150, 9), 130)])
def test_shapes_that_divide_nothing(device, variant, hidden, atoms):
    run = made(device, variant, hidden=hidden, atoms=atoms)
    weights = policies(2, hidden, atoms)
    seen = run.run(weights, starts(2, 3), STEPS, KEYS, stage_round=0, **RECORD)
    q = action_values(run, weights, seen)
    np.testing.assert_allclose(seen.values, q, atol=tolerance(variant) * np.abs(q).max(), rtol=0)


def test_a_network_too_large_for_local_memory_is_refused(device):
    tape, _ = scene()
    with pytest.raises(DeviceError, match=r"network\.hidden"):
        RolloutProgram(
            device, Shape((2**24, 2**24), ATOMS, ALL), MarketRules.of(tape.params), "group"
        )


def test_a_smaller_tile_gives_the_same_bits(device, monkeypatch):
    settings = {"stage_round": STREAM, "epsilon": 0.2} | RECORD
    whole = made(device, "group").run(policies(), starts(), STEPS, KEYS, **settings)
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 8)
    tape, x = scene()
    run = Rollout(device, tape, x, Shape(HIDDEN, ATOMS, ALL), "group")
    run.made = RolloutProgram(device, run.made.shape, MarketRules.of(tape.params), "group")
    assert run.made.sizes.tile == 8
    same(whole, run.run(policies(), starts(), STEPS, KEYS, **settings))
