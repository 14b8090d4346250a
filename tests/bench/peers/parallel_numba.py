"""The market alone beside the same loop in parallel numba, on the same CPU cores."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads

from backtest.market.layout import STATE, Array
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.simulate import DeviceTape, simulator
from tests.bench.market import BARS, KEY, random_actions
from tests.bench.peers.numba_market import parameters, random_walk
from tests.bench.rows import TIMES, Row, alternating
from tests.bench.scene import gaussian_tape

ENVS, GPU_ENVS = 4096, 131_072  # of numba and of a CPU device; of a GPU
STEPS, QUICK_STEPS = 2048, 512
SAMPLE, SAMPLE_STEPS = 256, 300  # compared with NumPy before the clock starts


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure numba, and the device beside it by turns."""
    tape = gaussian_tape(BARS)
    check(tape)
    steps = QUICK_STEPS if quick else STEPS
    envs = GPU_ENVS if device.kind == "gpu" else ENVS
    start = np.random.default_rng(0).integers(0, BARS - steps, envs)
    rewards, final = np.empty((steps, ENVS), np.float32), np.empty((ENVS, 16), np.float32)
    rows, first = DeviceTape(device, tape), upload(device, start.astype(np.int32))
    kept = empty(device, (steps, envs), np.float32), empty(device, envs, STATE.dtype)
    market, walk = simulator(device), NumbaMarket(tape)
    theirs, ours = alternating(
        lambda: walk.random(start[:ENVS], rewards, final),
        lambda: market.random_into(rows, first, *kept, KEY, 0).wait(),
    )
    if device.correctly_rounded and not np.array_equal(kept[0].read()[:, :ENVS], rewards):
        raise AssertionError("the numba market rewards other than the kernel; not timed")
    peer, rate = ENVS * steps / theirs, envs * steps / ours
    threads = f"{get_num_threads()} threads"
    return [
        Row(
            f"market, parallel numba, {ENVS:,} envs",
            peer,
            "steps/s",
            f"{threads}, static schedule, calibrated reward; {steps:,} steps",
        ),
        Row(
            "market alone, against parallel numba",
            rate / peer,
            TIMES,
            f"{rate:,.0f} steps/s on {device.name}, {envs:,} envs, beside numba on {threads}; "
            "by wall, by turns; bits equal",
            goal="numba",
        ),
    ]


class NumbaMarket:
    """A tape as numba's loop takes it."""

    def __init__(self, tape: Tape) -> None:
        columns = tape.bars.view(np.float32).reshape(-1, 8)
        self.tape = parameters(tape.params), columns, tape.bars["flags"].copy(), tape.aux

    def random(self, start: Array, rewards: Array, final: Array) -> None:
        """Walk under the actions of `random_sim_kernel`; see `numba_market.random_walk`."""
        random_walk(*self.tape, start, KEY, np.uint32(0), rewards, final)


def check(tape: Tape) -> None:
    """Compare rewards and final states with the NumPy definition, bit for bit."""
    start = np.random.default_rng(1).integers(0, BARS - SAMPLE_STEPS, SAMPLE)
    rewards = np.empty((SAMPLE_STEPS, SAMPLE), np.float32)
    final = np.empty((SAMPLE, 16), np.float32)
    NumbaMarket(tape).random(start, rewards, final)
    walk = walk_actions(tape, start, random_actions(SAMPLE_STEPS, SAMPLE, KEY, 0))
    last = walk.state[-1].view(np.float32).reshape(SAMPLE, -1)
    if not np.array_equal(rewards, walk.result["reward"]) or not np.array_equal(final, last):
        raise AssertionError("the numba market differs from NumPy; not timed")
