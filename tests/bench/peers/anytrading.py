"""The market alone beside gym-anytrading's environment under random actions.

Its `ForexEnv` is always short or long and pays the price difference of each segment, times 10,000,
when the position turns. With costs at zero and fills at the close, our market's trade results are
the same numbers. What is timed is what each one is: its step is Python, one environment at a time,
without costs, drawdown or regime; ours is the kernel with the full reward.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np
import pandas as pd
from gym_anytrading.envs import ForexEnv

from backtest.market.layout import STATE, Array, Fill
from backtest.market.tape import Tape
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.simulate import DeviceTape, simulator
from tests.bench.market import KEY
from tests.bench.rows import REPEATS, TIMES, Row, wall_seconds
from tests.bench.scene import gaussian_tape

BARS, QUICK_BARS = 50_000, 10_000
WINDOW = 10  # rows of an observation, as in its README
SCALE = 10_000  # its reward: price differences in pips
CHECKED = 2000  # steps
GPU_ENVS, CPU_ENVS, STEPS = 131_072, 4096, 512


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure its environment, and the device beside it by turns."""
    bars = QUICK_BARS if quick else BARS
    tape = gaussian_tape(bars)
    check(device, tape)
    envs = GPU_ENVS if device.kind == "gpu" else CPU_ENVS
    start = np.random.default_rng(0).integers(0, bars - STEPS, envs).astype(np.int32)
    rows, first = DeviceTape(device, tape), upload(device, start)
    kept = empty(device, (STEPS, envs), np.float32), empty(device, envs, STATE.dtype)
    market = simulator(device)
    environment = made(tape)
    actions = np.random.default_rng(0).integers(0, 2, bars)
    theirs, ours = [], []
    for _ in range(REPEATS):
        theirs.append(seconds_a_step(environment, actions))
        ours.append(wall_seconds(lambda: market.random_into(rows, first, *kept, KEY, 0).wait(), 1))
    rate, peer = envs * STEPS / median(ours), 1 / median(theirs)
    return [
        Row("gym-anytrading 2.0.0, ForexEnv", peer, "steps/s", "random actions, one CPU core"),
        Row(
            "market alone, against gym-anytrading",
            rate / peer,
            TIMES,
            f"{rate:,.0f} steps/s on {device.name}, calibrated reward, {envs:,} envs, by turns",
            goal="anytrading",
        ),
    ]


def made(tape: Tape) -> ForexEnv:
    """Return its environment on the closes of a tape."""
    close = tape.bars["close"].astype(np.float64) + float(tape.params["base"])
    return ForexEnv(pd.DataFrame({"Close": close}), WINDOW, (WINDOW, len(close)))


def seconds_a_step(environment: ForexEnv, actions: Array) -> float:
    """Return what a step takes in one episode of all bars."""
    environment.reset()
    steps = len(environment.prices) - WINDOW - 1
    chosen = actions[:steps].tolist()
    begin = time.perf_counter()
    for action in chosen:
        environment.step(action)
    return (time.perf_counter() - begin) / steps


def check(device: Device, tape: Tape) -> None:
    """Compare its reward with our trade results, step by step, exactly.

    It opens its first segment, a short one, at the bar before the first decision, and a step with
    action a at bar b turns the position at close[b]: so our targets begin one bar earlier.
    """
    params = tape.params.copy()
    params["fill"] = Fill.CLOSE
    for name in ("commission", "half_spread", "slippage", "tx_cost_multiplier"):
        params[name] = 0
    params["mult"] = 1
    params["initial_capital"] = 2**20  # cash stays a multiple of the tick in float32
    free = replace(tape, params=params)
    actions = np.random.default_rng(1).integers(0, 2, CHECKED)
    environment = made(tape)
    environment.reset()
    theirs = np.array([environment.step(action)[1] for action in actions])
    side = 2 * actions - 1
    # rows: the bar before the first decision, the bar where it may not act yet, the decisions
    targets = np.concatenate([[-1, -1], side]).astype(np.float32)[:, None]
    begin = np.array([WINDOW - 1])
    _, steps = simulator(device).targets(free, begin, targets)
    ours = steps["trade_result"][2:, 0].astype(np.float64) * SCALE
    if not np.array_equal(ours, theirs) or not np.count_nonzero(theirs):
        raise AssertionError("trade results differ from gym-anytrading's; not timed")
