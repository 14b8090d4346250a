"""The market alone: steps a second of the kernels, with the full reward, beside NumPy.

Before the clock starts, a sample of episodes is compared with the NumPy definition, bit for bit.
"""

from __future__ import annotations

import numpy as np

from backtest import rng
from backtest.market.layout import BAR, STATE, Array, Formula
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions, walk_targets
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.simulate import DeviceTape, Simulator, simulator
from tests.bench.rows import Row, device_seconds, wall_seconds
from tests.bench.scene import gaussian_tape

KEY = rng.key(0, "BENCH", "market")
BARS = 200_000
GPU_ENVS, CPU_ENVS = (2048, 16_384, 131_072, 1_048_576), (1024, 4096, 16_384)
SAMPLE = 64  # episodes compared with NumPy
# A step reads one bar and one forecast, and writes one reward; the state stays in registers.
BYTES = BAR.dtype.itemsize + 4 + 4


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    envs = GPU_ENVS if device.kind == "gpu" else CPU_ENVS
    if quick:
        envs = envs[1:2]
    rows = []
    for formula in (Formula.CALIBRATED, Formula.COMPOSITE):
        tape = gaussian_tape(BARS, formula)
        # the literal formula once, at the size that GPUs and CPUs do best
        for n in envs if formula == Formula.CALIBRATED else envs[-2:][:1]:
            rows.append(_kernel(device, tape, n, formula, quick))
    rows.append(_strategies(device, gaussian_tape(BARS), envs[0], quick))
    rows.append(_numpy(gaussian_tape(BARS), 256 if quick else 1024))
    return rows


def _steps(device: Device, n: int, quick: bool) -> int:
    total = 2**28 if device.kind == "gpu" else 2**23
    return max(64, min(4096, (total // 8 if quick else total) // n))


def _kernel(device: Device, tape: Tape, n: int, formula: Formula, quick: bool) -> Row:
    steps, market = _steps(device, n, quick), simulator(device)
    start = np.random.default_rng(n).integers(0, BARS - steps, n).astype(np.int32)
    _check(market, tape, start[:SAMPLE], min(steps, 256))
    rows, first = DeviceTape(device, tape), upload(device, start)
    rewards = empty(device, (steps, n), np.float32)
    final = empty(device, n, STATE.dtype)

    def launch() -> object:
        return market.random_into(rows, first, rewards, final, KEY, 0, timed=True)

    kernel, wall = device_seconds(launch), wall_seconds(lambda: launch().wait())
    rate = n * steps / kernel
    return Row(
        f"market, {formula.name.lower()} reward, {n:,} envs",
        rate,
        "steps/s",
        f"{n * steps / wall:,.0f} by wall; {BYTES} B a step = {rate * BYTES / 1e9:,.0f} GB/s; "
        f"{steps:,} steps in one kernel",
    )


def _check(market: Simulator, tape: Tape, start: Array, steps: int) -> None:
    rewards, final = market.random(tape, start, steps, KEY, 0)
    walk = walk_actions(tape, start, random_actions(steps, len(start), KEY, 0))
    for name, seen, wanted in (
        ("reward", rewards, walk.result["reward"]),
        *((name, final[name], walk.state[-1][name]) for name in STATE.dtype.names or ()),
    ):
        if market.device.correctly_rounded and not np.array_equal(seen, wanted):
            raise AssertionError(f"{market.device.name}: {name} differs from NumPy; not timed")


def random_actions(steps: int, n: int, key: Array, stage_round: int) -> Array:
    """Return what `random_sim_kernel` plays, uint8[steps, n, 4]."""
    counter = np.zeros((-(-steps // 4), n, 4), np.uint32)
    counter[..., 0], counter[..., 1] = stage_round, np.arange(n)
    counter[..., 2] = 4 * np.arange(len(counter))[:, None]
    words = np.moveaxis(rng.philox4x32_10(counter, key), 2, 1).reshape(-1, n)[:steps]
    pick = (words.astype(np.uint64) * 108) >> 32
    rest = pick >> 2
    return np.stack([pick & 3, rest % 3, rest // 3 % 3, rest // 9], -1).astype(np.uint8)


def _strategies(device: Device, tape: Tape, n: int, quick: bool) -> Row:
    """Given target positions: upload, kernel and the equity curves back."""
    steps = 512 if quick else 2048
    start = np.zeros(n, np.int64)
    targets = np.random.default_rng(1).integers(-1, 2, (steps, n)).astype(np.float32)
    market = simulator(device)
    few = walk_targets(tape, start[:SAMPLE], targets[:256, :SAMPLE])
    seen = market.equity(tape, start[:SAMPLE], targets[:256, :SAMPLE])
    if device.correctly_rounded and not np.array_equal(seen, few.state["portfolio_val"][1:]):
        raise AssertionError(f"{device.name}: equity differs from NumPy; not timed")
    wall = wall_seconds(lambda: market.equity(tape, start, targets))
    return Row(
        f"given targets, {n:,} strategies",
        n * steps / wall,
        "bars x strategies/s",
        f"by wall: {steps:,} bars, targets up, equity back, costs on",
    )


def _numpy(tape: Tape, n: int) -> Row:
    steps = 64
    start = np.random.default_rng(n).integers(0, BARS - steps, n)
    actions = random_actions(steps, n, KEY, 0)
    wall = wall_seconds(lambda: walk_actions(tape, start, actions), 3)
    return Row(
        f"NumPy market, {n:,} envs", n * steps / wall, "steps/s", "the definition, vectorised"
    )
