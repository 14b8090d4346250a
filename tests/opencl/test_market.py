"""market.cl against backtest/market/step.py: the three standard tests, and its small functions."""

from itertools import product

import numpy as np
import pytest

from backtest.market.layout import BAR, STATE, STEP, End, Fill, Formula, Order
from backtest.market.rough import rough_actions, rough_bars, rough_params, rough_tape
from backtest.market.step import advance, book, reset, step
from backtest.market.walk import walk_actions
from opencl.market import MARKET_FILES, MarketRules
from tests.opencl.wrapping import assert_same_records, evaluate
from tests.scenes import FULL, THIRD, action, bars, params

WRAPPERS = """
__kernel void test_step(const MarketParams p, __global const EpisodeState *s,
                        __global const int4 *action, __global const Bar *bar,
                        __global const Bar *nxt, __global const int *t, __global const int *last,
                        __global const float *aux, __global EpisodeState *new,
                        __global StepResult *result)
{
    const int i = get_global_id(0);
    EpisodeState mine = s[i];
    result[i] = step(&p, &mine, action[i], bar[i], nxt[i], t[i], last[i] != 0, aux[i]);
    new[i] = mine;
}

__kernel void test_advance(const MarketParams p, __global const EpisodeState *s,
                           __global const float *target, __global const float *urgency,
                           __global const int *order, __global const Bar *bar,
                           __global const Bar *nxt, __global const int *t,
                           __global const int *last, __global const float *aux,
                           __global EpisodeState *new, __global StepResult *result)
{
    const int i = get_global_id(0);
    EpisodeState mine = s[i];
    result[i] = advance(&p, &mine, target[i], urgency[i], order[i], bar[i], nxt[i], t[i],
                        last[i] != 0, aux[i]);
    new[i] = mine;
}

__kernel void test_book(const MarketParams p, __global const EpisodeState *s,
                        __global const float *x, const int n, __global float *out,
                        __global int *flags)
{
    const int i = get_global_id(0); // x (7, n): q1, d, price, entry, trade_cost, roll_cost, aux
    const EpisodeState mine = s[i];
    const Ledger l = book(&mine, &p, x[i], x[n + i], x[2 * n + i], x[3 * n + i], x[4 * n + i],
                          x[5 * n + i], x[6 * n + i]);
    out[i] = l.entry_price;
    out[n + i] = l.trade_pnl;
    out[2 * n + i] = l.aux_at_entry;
    out[3 * n + i] = l.realized;
    out[4 * n + i] = l.result;
    flags[i] = l.closed;
    flags[n + i] = l.flipped;
}

__kernel void test_bar_at(__global const Bar *bars, __global Bar *out)
{
    const int i = get_global_id(0);
    out[i] = bar_at(bars, i);
}

__kernel void test_fresh(const MarketParams p, __global EpisodeState *state,
                         __global StepResult *result)
{
    state[0] = reset(&p);
    result[0] = dead_step();
}
"""
MARKETS = list(product(Formula, Fill, (0.0, 0.3)))
by_market = pytest.mark.parametrize("formula, fill, lot_size", MARKETS)


@pytest.fixture
def program(device_program):
    """The program of a market's parameters."""
    return lambda p: device_program(MARKET_FILES, WRAPPERS, MarketRules.of(p).defines())


def run_step(program, p, s, action, bar, nxt, t, last, aux):
    """Return (new states, results) of the kernel's `step`; arguments as for the NumPy one."""
    n = len(s)
    given = s, action.astype(np.int32), bar, nxt, t.astype(np.int32), last.astype(np.int32)
    return evaluate(
        program(p), "test_step", n, p, *given, aux.astype(np.float32),
        out=[np.empty(n, STATE.dtype), np.empty(n, STEP.dtype)],
    )  # fmt: skip


def assert_same_step(program, p, *rest):
    new, result = run_step(program, p, *rest)
    wanted, expected = step(p, *rest)
    assert_same_records(wanted, new)
    assert_same_records(expected, result)
    return new, result


def random_states(rng, n, p):
    """States an episode could reach and some it could not; columns are drawn independently."""
    s = np.zeros(n, STATE.dtype)
    s["position"] = rng.choice(np.array([-3, -2, -1, -1 / 3, 0, 0, 0.002, 0.004, 1, 2, 3]), n)
    s["cash"] = rng.normal(20, 30, n)
    s["prev_equity"] = s["portfolio_val"] = rng.normal(20, 10, n)
    s["peak_equity"] = s["prev_equity"] + rng.exponential(2, n)
    s["dsr_A"] = rng.normal(0, 1e-3, n)
    s["dsr_B"] = s["dsr_A"] ** 2 * rng.choice(np.array([0.5, 1, 2, 50]), n)
    s["pnl_ema"] = rng.normal(0, 0.1, n)
    s["pnl_var"] = rng.exponential(1, n) * (rng.random(n) > 0.1)
    s["flat_counter"] = rng.integers(0, 80, n)
    s["hold_time"] = rng.integers(0, 80, n)
    s["realized_pnl"] = rng.normal(0, 20, n)
    s["entry_price"] = rng.normal(0, 10, n)
    s["trade_pnl"] = rng.normal(0, 2, n)
    s["aux_at_entry"] = rng.uniform(-1, 1, n)
    s["dd_excess"] = rng.exponential(1, n) * (rng.random(n) > 0.3)
    return s


def random_actions(rng, n):
    return np.stack([rng.integers(0, k, n) for k in (4, 3, 3, 3)], 1)


@by_market
def test_one_step_from_random_states(program, formula, fill, lot_size):
    n, rng = 30_000, np.random.default_rng(21)
    p = rough_params(formula, fill, lot_size)
    table, aux = rough_bars(n + 1, seed=5)
    new, result = assert_same_step(
        program, p, random_states(rng, n, p), random_actions(rng, n), table[:-1], table[1:],
        rng.integers(0, 120, n), rng.random(n) < 0.1, aux[:-1],
    )  # fmt: skip
    # the sample reaches what it is for
    assert set(result["end"]) == {End.RUNNING, End.TERMINATED, End.TRUNCATED}
    assert (new["position"][result["end"] == End.TERMINATED] == 0).all()
    flip = result["position"] * (result["position"] - result["filled"]) < 0
    assert (flip & (table["flags"][1:] & 1 == 1)).any()  # a flip on a roll bar
    assert (result["trade_result"] != 0).any() and (result["r_aux"] > 0).any()


@by_market
def test_each_step_of_a_trajectory(program, formula, fill, lot_size):
    """Every step starts from the definition's state, so a difference cannot hide behind another."""
    steps, n = 120, 64
    p = rough_params(formula, fill, lot_size)
    tape = rough_tape(p, 400, seed=6)
    start = np.random.default_rng(6).integers(0, 400 - steps, n)
    actions = rough_actions(steps, n, seed=6)
    walk = walk_actions(tape, start, actions)
    bar = start + np.arange(steps)[:, None]
    t = np.broadcast_to(np.arange(steps)[:, None], bar.shape)
    new, result = run_step(
        program, p, walk.state[:-1].ravel(), actions.reshape(-1, 4), tape.at(bar).ravel(),
        tape.at(bar + 1).ravel(), t.ravel(), t.ravel() == steps - 1, tape.aux[bar].ravel(),
    )  # fmt: skip
    living = (walk.result["end"] != End.DEAD).ravel()
    assert living.mean() > 0.8
    assert_same_records(walk.result.ravel()[living], result[living])
    assert_same_records(walk.state[1:].ravel()[living], new[living])


def edge_rows():
    """(name, params changes, state changes, action, bar pair) of the rows that break things."""
    two = bars([100.0, 103.0], open=[100, 101], high=[100, 104], low=[100, 100])
    rolled = two.copy()
    rolled["flags"][1] = 1
    empty = two.copy()
    empty["flags"] = 2
    still = bars([0.0, 0.0], sigma=0.0)
    below = bars([18.27, -37.63], open=[18.27, 17])
    held = {"position": 1.0, "entry_price": 90.0, "hold_time": 3.0}
    deep = {"position": 3.0, "entry_price": 100.0, "cash": -250.0, "prev_equity": 20.0}
    level = {"position": 1.0, "cash": 900.0}
    short = {"position": -1.0, "entry_price": 110.0, "trade_pnl": -2.0, "aux_at_entry": -0.5}
    return [
        ("flat stays flat", {}, {}, action(3), two),
        ("hold nothing", {}, {}, action(1), two),
        ("buy without volume", {}, {}, action(2), empty),
        ("exit without volume", {}, held, action(3), empty),
        ("roll while flat", {}, {}, action(3), rolled),
        ("roll while long", {"commission": 1.0}, held, action(1), rolled),
        ("flip on a roll", {"commission": 1.0, "half_spread": 0.5}, held, action(0), rolled),
        ("flip short to long", {"commission": 1.0}, short, action(2, THIRD), two),
        ("no sigma, no move", {"tick_size": 0.25}, {}, action(2), still),
        ("ruin below zero", {"mult": 1000.0, "initial_capital": 2e4}, held, action(1), below),
        ("short below zero", {"mult": 1000.0, "initial_capital": 2e4}, short, action(1), below),
        ("ruin by the mark", {"max_position": 3.0}, deep, action(1), below),
        ("ruin of a fresh flip", {"max_position": 3.0}, deep, action(0, FULL), below),
        ("ruin at the level", {"ruin_level": 1003.0}, level, action(1), two),
        ("no capital left before", {}, {"prev_equity": 0.0, "peak_equity": 0.0}, action(2), two),
        ("a whole lot too few", {"lot_size": 1.0, "max_position": 2.0}, {}, action(2, THIRD), two),
        ("deep limit missed", {}, {}, action(2, order=Order.DEEP_LIMIT), two),
        ("limit hit", {}, {}, action(0, order=Order.LIMIT), two),
        ("dust is closed", {}, {"position": 0.0011}, action(3, urgency=THIRD), two),
        ("exit at a profit", {}, held | {"aux_at_entry": 1.0}, action(3), two),
        ("exit at a loss", {}, held | {"entry_price": 120.0}, action(3), two),
    ]  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("formula, fill", list(product(Formula, Fill)))
@pytest.mark.parametrize("row", edge_rows(), ids=lambda row: row[0])
def test_edge_rows(program, formula, fill, last, row):
    _, changes, held, act, pair = row
    p = params(formula=formula, fill=fill, **changes)
    s = reset(p, 1)
    for name, value in held.items():
        s[name] = value
    new, result = assert_same_step(
        program, p, s, act[None], pair[:1], pair[1:], np.array([60]), np.array([last]), np.ones(1)
    )
    for record in (new, result):  # nothing divides by zero
        assert all(np.isfinite(record[name]).all() for name in record.dtype.names)
    if row[0].startswith("ruin"):
        assert result["end"][0] == End.TERMINATED  # wins over the window's end
    else:
        assert result["end"][0] == (End.TRUNCATED if last else End.RUNNING)


@pytest.mark.parametrize("fill", Fill)
def test_advance_towards_targets(program, fill):
    n, rng = 20_000, np.random.default_rng(22)
    p = rough_params(Formula.CALIBRATED, fill)
    table, aux = rough_bars(n + 1, seed=7)
    s = random_states(rng, n, p)
    target = rng.uniform(-3, 3, n).astype(np.float32)
    urgency = rng.uniform(0, 1, n).astype(np.float32)
    order = rng.integers(0, 3, n).astype(np.int32)
    t, last = np.full(n, 70, np.int32), np.zeros(n, np.int32)
    given = target, urgency, order, table[:-1], table[1:], t
    new, result = evaluate(
        program(p), "test_advance", n, p, s, *given, last, aux[:-1],
        out=[np.empty(n, STATE.dtype), np.empty(n, STEP.dtype)],
    )  # fmt: skip
    wanted, expected = advance(p, s, *given, last != 0, aux[:-1])
    assert_same_records(wanted, new)
    assert_same_records(expected, result)


def test_book(program):
    n, rng = 20_000, np.random.default_rng(23)
    p = rough_params(Formula.CALIBRATED, Fill.CLOSE)
    s = random_states(rng, n, p)
    q1 = rng.choice(np.array([-3, -1, 0, 0, 0.5, 2], np.float32), n)
    d = q1 - s["position"]
    d[::7], q1[::7] = 0, s["position"][::7]  # nothing filled
    price, entry = rng.normal(0, 10, (2, n)).astype(np.float32)
    costs = rng.exponential(0.1, (2, n)).astype(np.float32)
    aux = rng.uniform(-1, 1, n).astype(np.float32)
    x = np.stack([q1, d, price, entry, *costs, aux])
    out, flags = evaluate(
        program(p), "test_book", n, p, s, x, np.int32(n),
        out=[np.empty((5, n), np.float32), np.empty((2, n), np.int32)],
    )  # fmt: skip
    ledger = book(s, p, *x)
    names = ("entry_price", "trade_pnl", "aux_at_entry", "realized", "result")
    for name, seen in zip(names, out, strict=True):
        np.testing.assert_array_equal(seen, getattr(ledger, name), err_msg=name)
    np.testing.assert_array_equal(flags[0] != 0, ledger.closed)
    np.testing.assert_array_equal(flags[1] != 0, ledger.flipped)
    assert ledger.flipped.any() and ledger.closed.any()


def test_bar_at_reads_every_field(program):
    table, _ = rough_bars(100, seed=8)
    (seen,) = evaluate(program(params()), "test_bar_at", 100, table, out=[np.empty(100, BAR.dtype)])
    assert seen.tobytes() == table.tobytes()  # the flags too, which a float cannot hold


def test_reset_and_dead_step(program):
    p = rough_params(Formula.COMPOSITE, Fill.CLOSE)
    state, result = evaluate(
        program(p), "test_fresh", 1, p, out=[np.empty(1, STATE.dtype), np.empty(1, STEP.dtype)]
    )
    assert_same_records(reset(p, 1), state)
    dead = np.zeros(1, STEP.dtype)
    dead["end"] = End.DEAD
    assert_same_records(dead, result)
