"""The NumPy market against the kernels, column by column, on the user's own device.

Rough bars, both formulas, both fills, fractional and whole lots: every result and state column of
given actions, of given targets and their totals, the random numbers, a whole rollout with its
policy, and the skill banks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from backtest import rng
from backtest.agent.explore import choose
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, PolicyWeights, forward
from backtest.market.layout import (
    BRANCHES,
    N_ACTIONS,
    N_PORTFOLIO,
    TOTALS,
    Array,
    End,
    Fill,
    Formula,
)
from backtest.market.portfolio import portfolio_state
from backtest.market.rough import rough_actions, rough_params, rough_tape
from backtest.market.tape import Tape
from backtest.market.totals import walk_totals
from backtest.market.walk import Walk, walk_actions, walk_targets
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.differences import Row, compare
from opencl.programs import Program
from opencl.rollout import Rollout, Shape, Trajectories
from opencl.simulate import Simulator, simulator
from opencl.verify_bank import KINDS, verify_bank

# Largest difference of a float column, as a fraction of its largest value, on a device without
# correctly rounded division (OpenCL allows 2.5 ulp). An H200 without its rounding option reaches
# 4.7e-6, in the differential Sharpe ratio, which divides by a difference of moments.
INEXACT = 5e-5
Q_TOLERANCE = 1e-5  # of the largest action value: sums of 128 products, in another order
PORTFOLIO_TOLERANCE = 1e-5  # of the largest: log1p may differ by an ulp
AGREEMENT = 0.995  # of greedy actions; the rest are ties within the tolerance

EPISODES, STEPS, BARS = 61, 128, 500  # 61: not a multiple of any tile
HIDDEN, ATOMS = (32, 32), 51
BLOCKS = 4096  # Philox blocks
EPSILON, ROUND = 0.25, 3
LOG_SLOTS = (2, 3)  # of the portfolio part

WRAPPER = """
__kernel void philox_blocks(__global const uint4 *counter, const uint2 key, __global uint4 *out)
{
    const int i = get_global_id(0);
    out[i] = philox4x32_10(counter[i], key);
}
"""


@dataclass(frozen=True)
class Verification:
    """What a device gave.

    Attributes:
        device: its name.
        exact: its float32 arithmetic is NumPy's, so market columns had to be equal in every bit.
        rows: all comparisons.
    """

    device: str
    exact: bool
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Every row is as it must be."""
        return all(row.ok for row in self.rows)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that are not."""
        return tuple(row for row in self.rows if not row.ok)


def verify(
    device: Device, seed: int = 0, progress: Callable[[str], None] | None = None
) -> Verification:
    """Compare the definition and the kernels on one device; a few seconds.

    Args:
        device: of `devices.select`.
        seed: of bars, actions and weights.
        progress: called with the name of each part as it begins.

    Raises:
        DeviceError: the device cannot be opened.
        KernelError: a kernel does not build, or a struct is laid out differently.
    """
    exact = device.correctly_rounded
    tolerance = 0.0 if exact else INEXACT
    report = progress or (lambda text: None)
    rows: list[Row] = []
    report("random numbers")
    rows += _random_numbers(device, seed)
    # Whole lots are a quotient cut to an integer: off by one ulp it loses a lot, and the episode
    # goes another way. Only powers of two divide exactly on an inexact device.
    for formula, fill, lot in product(Formula, Fill, (0.0, 0.3 if exact else 0.5)):
        what = f"{formula.name.lower()}, {fill.name.lower()}, " + ("lots" if lot else "fractions")
        report(what)
        rows += _market(simulator(device), rough_params(formula, fill, lot), what, seed, tolerance)
    for formula in Formula:
        what = f"rollout, {formula.name.lower()}"
        report(what)
        rows += _rollout(device, rough_params(formula, Fill.NEXT_OPEN), what, seed, tolerance)
    for kind in KINDS:
        report(f"skill bank, {kind}")
        rows += verify_bank(device, kind, seed, tolerance, AGREEMENT)
    return Verification(device.name, exact, tuple(rows))


def _random_numbers(device: Device, seed: int) -> Iterator[Row]:
    counter = np.random.default_rng(seed).integers(0, 2**32, (BLOCKS, 4), np.uint32)
    key = rng.key(seed, "verify", "philox")
    out = empty(device, counter.shape, np.uint32)
    kernel = Program(device, ["philox.cl"], extra_source=WRAPPER).kernel("philox_blocks")
    kernel(device.queue, (BLOCKS,), None, upload(device, counter).buffer, key, out.buffer)
    yield compare("philox4x32-10", "words", rng.philox4x32_10(counter, key), out.read())


def _market(
    market: Simulator, params: Array, what: str, seed: int, tolerance: float
) -> Iterator[Row]:
    tape = rough_tape(params, BARS, seed, start=100)
    draw = np.random.default_rng(seed)
    start = draw.integers(tape.start, tape.stop - STEPS, EPISODES)
    actions = rough_actions(STEPS, EPISODES, seed)
    walk, seen = walk_actions(tape, start, actions), market.actions(tape, start, actions)
    for name in walk.result.dtype.names or ():
        yield compare(f"actions, {what}", name, walk.result[name], seen.result[name], tolerance)
    for name in walk.state.dtype.names or ():
        yield compare(f"states, {what}", name, walk.state[name], seen.state[name], tolerance)
    targets = draw.integers(-3, 4, (STEPS, EPISODES)).astype(np.float32)
    walk = walk_targets(tape, start, targets)
    equity, trace = market.targets(tape, start, targets)
    for name in walk.result.dtype.names or ():
        yield compare(f"targets, {what}", name, walk.result[name], trace[name], tolerance)
    held = walk.state["portfolio_val"][1:]
    yield compare(f"targets, {what}", "equity curve", held, equity, tolerance)
    wanted, totals = walk_totals(tape, walk), market.backtest(tape, start, targets).totals
    for name in TOTALS.dtype.names or ():
        yield compare(f"totals, {what}", name, wanted[name], totals[name], tolerance)


def _rollout(
    device: Device, params: Array, what: str, seed: int, tolerance: float
) -> Iterator[Row]:
    tape = rough_tape(params, BARS, seed, start=100)
    draw = np.random.default_rng(seed)
    bar_part = draw.normal(0, 1, (BARS, N_BAR)).astype(np.float32)
    policies = [random_policy(HIDDEN, ATOMS, seed + i) for i in range(2)]
    keys = np.stack([rng.key(seed + i, "verify", "rollout") for i in range(2)])
    start = draw.integers(tape.start, tape.stop - STEPS, (2, EPISODES))
    shape = Shape(HIDDEN, ATOMS, tuple(BRANCHES))
    stream = int(rng.stream(rng.Stage.COLLECT, ROUND))
    seen = Rollout(device, tape, bar_part, shape).run(
        policies, start, STEPS, keys,
        stage_round=stream, epsilon=EPSILON, portfolio=True, trace=True, values=True,
    )  # fmt: skip
    assert seen.trace is not None and seen.values is not None and seen.portfolio is not None
    walk = walk_actions(tape, seen.start, seen.action)
    for name in walk.result.dtype.names or ():
        yield compare(what, name, walk.result[name], seen.trace[name], tolerance)
    bars = seen.start + np.arange(STEPS + 1)[:, None]
    portfolio = _portfolio(walk, tape, bars)
    for slot in range(N_PORTFOLIO):
        limit = max(tolerance, PORTFOLIO_TOLERANCE) if slot in LOG_SLOTS else tolerance
        mine = seen.portfolio[..., slot]
        yield compare(what, f"portfolio {slot}", portfolio[..., slot], mine, limit)
    q = _action_values(policies, bar_part[bars[:-1] - tape.start], seen.portfolio[:-1])
    yield compare(what, "action values", q, seen.values, max(tolerance, Q_TOLERANCE))
    yield _agreement(what, _choices(q, keys), seen)


def _portfolio(walk: Walk, tape: Tape, bars: Array) -> Array:
    steps = [
        portfolio_state(tape.params, state, tape.at(bar), np.full(len(bar), t))
        for t, (state, bar) in enumerate(zip(walk.state, bars, strict=True))
    ]
    return np.stack(steps)


def _action_values(policies: list[PolicyWeights], bar_part: Array, portfolio: Array) -> Array:
    halves = [
        forward(
            policy,
            bar_part[:, i * EPISODES : (i + 1) * EPISODES].reshape(-1, N_BAR),
            portfolio[:, i * EPISODES : (i + 1) * EPISODES].reshape(-1, N_PORTFOLIO),
        ).reshape(STEPS, EPISODES, N_ACTIONS)
        for i, policy in enumerate(policies)
    ]
    return np.concatenate(halves, axis=1)


def _choices(q: Array, keys: Array) -> Array:
    steps, n = q.shape[:2]
    t, episode = np.divmod(np.arange(steps * n), n)
    policy, episode = np.divmod(episode, EPISODES)
    chosen = choose(
        q.reshape(-1, N_ACTIONS),
        BRANCHES,
        EPSILON,
        keys[policy],
        rng.Stage.COLLECT,
        ROUND,
        episode,
        t,
    )
    return chosen.reshape(steps, n, len(BRANCHES))


def _agreement(what: str, expected: Array, seen: Trajectories) -> Row:
    living = seen.end != End.DEAD
    gap = (expected[living] != seen.action[living]).any(axis=-1)
    different = int(gap.sum())
    ok = different <= (1 - AGREEMENT) * gap.size
    return Row(what, "actions agree", int(gap.size), different, float(different > 0), ok)
