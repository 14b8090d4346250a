"""The market alone: steps a second of the kernels, with the full reward, beside NumPy.

Then the vector backtester: given target positions, equity kept on the device, totals read back.
Before the clock starts, a sample of episodes is compared with the NumPy definition, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backtest import rng
from backtest.market.layout import BAR, STATE, TOTALS, Array, Formula
from backtest.market.tape import Tape
from backtest.market.totals import walk_totals
from backtest.market.walk import walk_actions, walk_targets
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.simulate import Backtest, DeviceTape, Simulator, simulator
from tests.bench.operations import step_operations
from tests.bench.roofline import share
from tests.bench.rows import Row, device_seconds, wall_seconds
from tests.bench.scene import gaussian_tape

KEY = rng.key(0, "BENCH", "market")
BARS = 200_000
GPU_ENVS, CPU_ENVS = (2048, 16_384, 131_072, 1_048_576), (1024, 4096, 16_384)
GOAL_ENVS = {"gpu": 131_072, "cpu": 4096}
GPU_STRATEGIES, CPU_STRATEGIES = (16_384, 131_072), (4096,)
SAMPLE = 64  # episodes compared with NumPy
# A step reads one bar and one forecast, out of the caches where episodes share bars, and writes one
# reward; the state stays in registers.
BYTES = BAR.dtype.itemsize + 4 + 4
# A strategy's step reads its target and writes its equity; the bar is the same for all of them.
STRATEGY_BYTES = 4 + 4
RATE = "bars x strategies/s"


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    gpu = device.kind == "gpu"
    envs = GPU_ENVS if gpu else CPU_ENVS
    strategies = GPU_STRATEGIES if gpu else CPU_STRATEGIES
    if quick:
        envs, strategies = envs[1:2], strategies[:1]
    rows = []
    for formula in (Formula.CALIBRATED, Formula.COMPOSITE):
        tape = gaussian_tape(BARS, formula)
        rows += [_kernel(device, tape, n, formula, quick) for n in envs]
    for n in strategies:
        rows += _strategies(device, gaussian_tape(BARS), n, quick)
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
    rate, operations = n * steps / kernel, step_operations(tape)
    name = formula.name.lower()
    aimed = formula == Formula.CALIBRATED and n == GOAL_ENVS.get(device.kind)
    return Row(
        f"market, {name} reward, {n:,} envs",
        rate,
        "steps/s",
        f"{n * steps / wall:,.0f} by wall; a step is {operations} operations of float32 and "
        f"{BYTES} B of bars and reward: {rate * operations / 1e12:,.3g} TFLOP/s, "
        f"{rate * BYTES / 1e9:,.0f} GB/s; {steps:,} steps in one kernel",
        series=f"market, {name} reward",
        axis="envs",
        x=n,
        roofline=share(device, "fp32", rate * operations),
        goal=f"env_{device.kind}" if aimed else "",
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


def _strategies(device: Device, tape: Tape, n: int, quick: bool) -> list[Row]:
    """Given target positions: the kernel alone, then with what has to be carried."""
    steps = _steps(device, n, quick)
    start = np.zeros(n, np.int64)
    signs = np.random.default_rng(1).integers(-1, 2, (steps, n), dtype=np.int8)
    market, rows = simulator(device), DeviceTape(device, tape)
    _check_targets(market, tape, signs[:256, :SAMPLE])
    targets = signs.astype(np.float32)
    held = upload(device, targets)

    def kept() -> Backtest:
        return market.backtest(rows, start, held, equity=True, timed=True)

    rate = n * steps / device_seconds(lambda: kept().event)
    bandwidth = rate * STRATEGY_BYTES
    made = [
        Row(
            f"backtest kernel, {n:,} strategies",
            rate,
            RATE,
            f"targets, equity and totals on the device; {STRATEGY_BYTES} B a bar and strategy = "
            f"{bandwidth / 1e9:,.0f} GB/s; {steps:,} bars, all costs",
            series="backtest, kernel",
            axis="strategies",
            x=n,
            roofline=share(device, "bandwidth", bandwidth),
        )
    ]
    ways: dict[str, Callable[[], object]] = {
        "targets on the device, totals back": lambda: market.backtest(rows, start, held).totals,
        "int8 targets up, totals back": lambda: market.backtest(rows, start, signs).totals,
        "float32 targets up, totals back": lambda: market.backtest(rows, start, targets).totals,
        "float32 targets up, equity back": lambda: (
            market.backtest(rows, start, targets, equity=True).equity
        ),
    }
    for what, work in ways.items():
        rate = n * steps / wall_seconds(work)
        detail = f"by wall: {steps:,} bars, all costs; totals are {TOTALS.dtype.itemsize} B each"
        place = {"series": f"backtest, {what}", "axis": "strategies", "x": n}
        made.append(Row(f"backtest, {n:,} strategies, {what}", rate, RATE, detail, **place))
    return made


def _check_targets(market: Simulator, tape: Tape, targets: Array) -> None:
    start = np.zeros(targets.shape[1], np.int64)
    walk = walk_targets(tape, start, targets.astype(np.float32))
    seen = market.backtest(tape, start, targets, equity=True)
    equal = np.array_equal(seen.equity, walk.state["portfolio_val"][1:])
    equal &= np.array_equal(seen.totals, walk_totals(tape, walk))
    if market.device.correctly_rounded and not equal:
        raise AssertionError(f"{market.device.name}: the backtest differs from NumPy; not timed")


def _numpy(tape: Tape, n: int) -> Row:
    steps = 64
    start = np.random.default_rng(n).integers(0, BARS - steps, n)
    actions = random_actions(steps, n, KEY, 0)
    wall = wall_seconds(lambda: walk_actions(tape, start, actions), 3)
    return Row(
        f"NumPy market, {n:,} envs", n * steps / wall, "steps/s", "the definition, vectorised"
    )
