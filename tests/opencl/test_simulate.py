"""simulate.cl against backtest/market/walk.py: whole trajectories, equal in every bit."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backtest import rng
from backtest.market.layout import STATE, STEP, End, Fill, Formula
from backtest.market.rough import rough_actions, rough_bars, rough_params, rough_tape
from backtest.market.step import reset
from backtest.market.tape import Tape
from backtest.market.totals import walk_totals
from backtest.market.walk import walk_actions, walk_targets
from opencl.buffers import empty, upload
from opencl.market import MarketRules
from opencl.simulate import (
    GROUP,
    SIMULATE_FILES,
    TARGET_TYPES,
    DeviceTape,
    padded,
    simulator,
)
from tests.opencl.wrapping import assert_same_records, evaluate
from tests.scenes import params

STEPS, N, START = 160, 70, 100  # 70: one whole group and six more
MARKETS = list(product(Formula, Fill, (0.0, 0.3)))
WRAPPERS = """
__kernel void test_alive(const MarketParams p, __global const EpisodeState *s,
                         __global const int *living, __global const Bar *bars,
                         __global EpisodeState *new, __global StepResult *result,
                         __global int *after)
{
    const int i = get_global_id(0);
    EpisodeState mine = s[i];
    bool alive = living[i] != 0;
    const Bar now = bars[i], nxt = bars[i + 1];
    result[i] = step_alive(&p, &mine, &alive, (int4)(2, 2, 0, 2), now, nxt, 3, false, 0.5f);
    new[i] = mine;
    after[i] = alive;
}

__kernel void test_random_action(__global const uint *word, __global int4 *out)
{
    const int i = get_global_id(0);
    out[i] = random_action(word[i]);
}
"""


@pytest.fixture
def program(device_program):
    rules = MarketRules.of(rough_params(Formula.CALIBRATED, Fill.CLOSE))
    return device_program(SIMULATE_FILES, WRAPPERS, rules.defines() | {"TARGET_BITS": 32})


def scene(formula=Formula.CALIBRATED, fill=Fill.NEXT_OPEN, lot_size=0.0, n=N, seed=1):
    """Return a tape of 400 rough bars from bar 100, and starts on it."""
    tape = rough_tape(rough_params(formula, fill, lot_size), 400, seed, START)
    return tape, np.random.default_rng(seed).integers(START, tape.stop - STEPS, n)


def uniform_actions(words):
    """The action of each random word: uint8[..., 4]."""
    pick = (words.astype(np.uint64) * 108) >> 32
    rest = pick >> 2
    return np.stack([pick & 3, rest % 3, rest // 3 % 3, rest // 9], -1).astype(np.uint8)


@pytest.mark.parametrize("formula, fill, lot_size", MARKETS)
def test_action_sim_kernel(device, formula, fill, lot_size):
    tape, start = scene(formula, fill, lot_size)
    actions = rough_actions(STEPS, N, seed=2)
    walk, seen = walk_actions(tape, start, actions), simulator(device).actions(tape, start, actions)
    assert_same_records(walk.result, seen.result)
    assert_same_records(walk.state, seen.state)
    assert set(np.unique(walk.result["end"])) == set(End)  # ruin, time up, and rows after ruin


@pytest.mark.parametrize("formula, fill, lot_size", MARKETS)
def test_portfolio_sim_kernel(device, formula, fill, lot_size):
    """And portfolio_trace_kernel: trade_targets with and without every result."""
    tape, start = scene(formula, fill, lot_size)
    targets = np.random.default_rng(3).uniform(-3, 3, (STEPS, N)).astype(np.float32)
    targets[:, ::3] = np.round(targets[:, ::3])
    walk = walk_targets(tape, start, targets)
    equity, trace = simulator(device).targets(tape, start, targets)
    assert_same_records(walk.result, trace)
    np.testing.assert_array_equal(equity, walk.state["portfolio_val"][1:])
    made = simulator(device).backtest(tape, start, targets, equity=True)
    np.testing.assert_array_equal(made.equity, equity)
    assert_same_records(walk_totals(tape, walk), made.totals)


@pytest.mark.parametrize("kind", TARGET_TYPES)
@pytest.mark.parametrize("held", [False, True])
def test_backtest_takes_narrow_targets_from_host_and_device(device, kind, held):
    tape, start = scene(n=2 * GROUP)
    targets = np.random.default_rng(8).integers(-6, 7, (STEPS, len(start))) / 2
    targets = np.trunc(targets).astype(kind) if kind == np.int8 else targets.astype(kind)
    walk = walk_targets(tape, start, targets.astype(np.float32))
    run = simulator(device)
    given = upload(device, targets) if held else targets
    made = run.backtest(DeviceTape(device, tape) if held else tape, start, given, timed=held)
    assert_same_records(walk_totals(tape, walk), made.totals)
    assert made.totals["wins"].any() and (made.totals["end"] == End.TERMINATED).any()
    with pytest.raises(ValueError, match="not kept"):
        _ = made.equity


def test_backtest_refuses_what_it_cannot_take(device):
    tape, start = scene()
    targets = np.zeros((STEPS, N), np.float32)
    run = simulator(device)
    with pytest.raises(TypeError, match="float64"):
        run.backtest(tape, start, targets.astype(np.float64))
    with pytest.raises(ValueError, match="70 strategies, starts of 69"):
        run.backtest(tape, start[:-1], targets)
    with pytest.raises(ValueError, match="whole groups of 64"):
        run.backtest(tape, start, upload(device, targets))


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, STEPS])
def test_random_sim_kernel(device, steps):
    """Four steps share a Philox block: step t takes word t mod 4 of counter t - t mod 4."""
    tape, start = scene()
    key, stream = rng.key(5, "X", "2001"), int(rng.stream(rng.Stage.BASELINE, 2))
    counter = np.zeros((-(-steps // 4), N, 4), np.uint32)
    counter[..., 0], counter[..., 1] = stream, np.arange(N)
    counter[..., 2] = 4 * np.arange(len(counter))[:, None]
    words = np.moveaxis(rng.philox4x32_10(counter, key), 2, 1).reshape(-1, N)[:steps]
    walk = walk_actions(tape, start, uniform_actions(words))
    rewards, final = simulator(device).random(tape, start, steps, key, stream)
    np.testing.assert_array_equal(rewards, walk.result["reward"])
    assert_same_records(walk.state[-1], final)


def test_random_action_is_uniform(program):
    words = np.random.default_rng(4).integers(0, 2**32, 108_000, np.uint32)
    words[:3] = 0, 2**32 - 1, 2**31
    (seen,) = evaluate(
        program, "test_random_action", len(words), words, out=[np.empty((len(words), 4), np.int32)]
    )
    np.testing.assert_array_equal(seen, uniform_actions(words))
    _, counts = np.unique(seen, axis=0, return_counts=True)
    assert len(counts) == 108
    assert counts.min() > 850 and counts.max() < 1150


def test_step_alive_leaves_the_dead_alone(program):
    n, p = 64, rough_params(Formula.CALIBRATED, Fill.CLOSE)
    bars, _ = rough_bars(n + 1)
    s = reset(p, n)
    s["aux_at_entry"] = s["hold_time"] = 1 + np.arange(n)
    living = (np.arange(n) // 2 % 2).astype(np.int32)
    new, result, after = evaluate(
        program, "test_alive", n, p, s, living, bars,
        out=[np.empty(n, STATE.dtype), np.empty(n, STEP.dtype), np.empty(n, np.int32)],
    )  # fmt: skip
    dead = living == 0
    assert_same_records(s[dead], new[dead])
    buried = np.zeros(dead.sum(), STEP.dtype)
    buried["end"] = End.DEAD
    assert_same_records(buried, result[dead])
    assert not after[dead].any()
    assert (result["end"][~dead] == End.RUNNING).all() and after[~dead].all()
    assert (new["prev_equity"][~dead] != s["prev_equity"][~dead]).mean() > 0.8


def test_an_episode_does_not_depend_on_the_others(device):
    tape, start = scene(n=3 * GROUP)
    actions = rough_actions(STEPS, len(start), seed=5)
    whole = simulator(device).actions(tape, start, actions)
    for picked in (slice(0, 1), slice(17, 54), slice(GROUP, 2 * GROUP)):
        part = simulator(device).actions(tape, start[picked], actions[:, picked])
        assert_same_records(whole.result[:, picked], part.result)
        assert_same_records(whole.state[:, picked], part.state)


def test_twice_the_same(device):
    tape, start = scene()
    key = rng.key(5, "X", "2001")
    first, second = (simulator(device).random(tape, start, STEPS, key, 0) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].tobytes() == second[1].tobytes()


@pytest.mark.parametrize("cut", [1, 40, STEPS])
def test_no_step_sees_beyond_its_next_bar(device, cut):
    tape, _ = scene()
    start = np.full(N, START)
    actions = rough_actions(STEPS, N, seed=6)
    before = simulator(device).actions(tape, start, actions)
    bars, aux = tape.bars.copy(), tape.aux.copy()
    other, other_aux = rough_bars(len(bars), seed=99)
    bars[cut + 1 :], aux[cut + 1 :] = other[cut + 1 :], other_aux[cut + 1 :]
    after = simulator(device).actions(Tape(START, bars, tape.params, aux), start, actions)
    # the step of bar b ends at bar b+1 = cut at the latest
    assert_same_records(before.result[:cut], after.result[:cut])
    assert_same_records(before.state[: cut + 1], after.state[: cut + 1])
    if cut < STEPS:
        assert (before.result["equity"][cut] != after.result["equity"][cut]).any()


def test_nothing_beyond_the_tape_reaches_the_device(device):
    bars, aux = rough_bars(1000)
    p = rough_params(Formula.CALIBRATED, Fill.CLOSE)
    tape = Tape(200, bars[200:260], p, aux[200:260])  # a view of more
    rows = DeviceTape(device, tape)
    assert rows.bars.buffer.size == 60 * 32 and rows.aux.buffer.size == 60 * 4
    assert rows.bars.read().tobytes() == bars[200:260].tobytes()


@pytest.mark.parametrize("first, steps", [(99, 10), (100, 400), (499, 1), (450, 50)])
def test_episodes_stay_on_the_tape(device, first, steps):
    tape, _ = scene()
    start = np.array([first])
    run = simulator(device)
    with pytest.raises(IndexError, match="leave the tape"):
        run.actions(tape, start, rough_actions(steps, 1))
    with pytest.raises(IndexError, match="leave the tape"):
        run.targets(tape, start, np.zeros((steps, 1), np.float32))
    with pytest.raises(IndexError, match="leave the tape"):
        run.random(tape, start, steps, rng.key(0, "X", "Y"), 0)


def test_the_last_bar_of_the_tape_can_be_earned(device):
    tape, _ = scene()
    start, actions = np.array([498]), rough_actions(1, 1)
    seen = simulator(device).actions(tape, start, actions)
    assert seen.result["end"][0, 0] == End.TRUNCATED
    assert_same_records(walk_actions(tape, start, actions).result, seen.result)


def test_episodes_are_padded_to_whole_groups(device):
    assert [padded(n) for n in (1, GROUP, GROUP + 1)] == [GROUP, GROUP, 2 * GROUP]
    tape, start = scene()
    arrays = (
        upload(device, start.astype(np.int32)),
        empty(device, (STEPS, N), np.float32),
        empty(device, N, STATE.dtype),
    )
    with pytest.raises(ValueError, match="70 episodes"):
        simulator(device).random_into(DeviceTape(device, tape), *arrays, rng.key(0, "X", "Y"), 0)


amounts = st.floats(0, 10)
markets = st.fixed_dictionaries(
    {
        "base": st.floats(-1000, 1000),
        "mult": st.sampled_from([0.1, 1.0, 50.0, 1000.0]),
        "tick_size": st.sampled_from([0.01, 0.25, 1.0]),
        "lot_size": st.sampled_from([0.0, 0.1, 0.3, 1.0]),
        "commission": amounts,
        "half_spread": amounts,
        "slippage": amounts,
        "tx_cost_multiplier": st.floats(0, 0.01),
        "max_position": st.floats(1, 50),
        "initial_capital": st.floats(1, 1e6),
        "ruin_level": st.floats(-100, 10),
        "dd_threshold": st.floats(0.01, 0.5),
        "loss_aversion": st.floats(1, 3),
        "dsr_eta": st.floats(0.001, 0.5),
        "formula": st.sampled_from(list(Formula)),
        "fill": st.sampled_from(list(Fill)),
    }
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=markets, seed=st.integers(0, 2**16))
def test_any_market_is_equal(device, changes, seed):
    tape = rough_tape(params(**changes), 60, seed)
    start, actions = np.arange(16), rough_actions(40, 16, seed)
    walk = walk_actions(tape, start, actions)
    seen = simulator(device).actions(tape, start, actions)
    assert_same_records(walk.result, seen.result)
    assert_same_records(walk.state, seen.state)
