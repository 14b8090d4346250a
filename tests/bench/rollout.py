"""Policy and market in one kernel, beside the same loop of NumPy and torch on the CPU.

The standard network (128-128, 51 atoms, all 13 actions) on the same bars and episodes; before the
clock starts both must choose the same actions and the market must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, PolicyWeights
from backtest.market.layout import BRANCHES, N_ACTIONS, N_PORTFOLIO, STATE_DIM, Array
from backtest.market.walk import walk_actions
from opencl.devices import Device
from opencl.rollout import Rollout, Shape
from tests.bench.peers.numpy_torch import TorchLoop
from tests.bench.rows import Row, device_seconds, wall_seconds
from tests.bench.scene import gaussian_tape

HIDDEN, ATOMS = (128, 128), 51
BARS = 20_000
GPU_ENVS, CPU_ENVS = (4096, 16_384, 65_536), (64, 256, 1024)
CHECK_STEPS, CHECK_ENVS = 32, 256
AGREEMENT = 0.995  # of actions; sums in another order break near ties
KEYS = rng.key(0, "BENCH", "rollout")[None]
# Multiply-adds a step: the network's own, and the kernel's, which takes the bar's part of the
# first layer from a table.
TAIL = HIDDEN[0] * HIDDEN[1] + HIDDEN[1] * N_ACTIONS * ATOMS
MACS, KERNEL_MACS = STATE_DIM * HIDDEN[0] + TAIL, N_PORTFOLIO * HIDDEN[0] + TAIL


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device and the peer."""
    envs = GPU_ENVS if device.kind == "gpu" else CPU_ENVS
    tape = gaussian_tape(BARS)
    x = np.random.default_rng(0).normal(0, 1, (BARS, N_BAR)).astype(np.float32)
    policy = random_policy(HIDDEN, ATOMS)
    rollout = Rollout(device, tape, x, Shape(HIDDEN, ATOMS, tuple(BRANCHES)))
    peer = TorchLoop(tape, x, policy)
    _check(rollout, peer, policy)
    sizes = envs[1:2] if quick else envs
    rows = [_kernel(rollout, policy, n, quick) for n in sizes]
    n, steps = CPU_ENVS[-1], 8 if quick else 32
    seconds = wall_seconds(lambda: peer.play(_starts(n, steps), steps), 3)
    best = max(row.figure for row in rows)
    rate = n * steps / seconds
    detail = f"{MACS:,} multiply-adds a step; the rollout is {best / rate:,.1f} times as fast"
    return [*rows, Row(f"NumPy market + torch policy, {n:,} envs", rate, "steps/s", detail)]


def _starts(n: int, steps: int) -> Array:
    return np.random.default_rng(n).integers(0, BARS - steps, n)


def _kernel(rollout: Rollout, policy: PolicyWeights, n: int, quick: bool) -> Row:
    gpu = rollout.device.kind == "gpu"
    total = 2**24 if gpu else 2**17
    steps = max(32, min(512, (total // 8 if quick else total) // n))
    start = _starts(n, steps)[None]

    def launch() -> Any:
        return rollout.launch([policy], start, steps, KEYS, stage_round=0, epsilon=0.1, timed=True)

    seconds = device_seconds(lambda: launch().event)
    wall = wall_seconds(
        lambda: rollout.run(
            [policy], start, steps, KEYS, stage_round=0, epsilon=0.1, portfolio=True
        )
    )
    rate = n * steps / seconds
    return Row(
        f"rollout, fp32, {n:,} envs",
        rate,
        "steps/s",
        f"{2 * KERNEL_MACS * rate / 1e12:,.2f} TFLOP/s ({KERNEL_MACS:,} multiply-adds a step); "
        f"{n * steps / wall:,.0f} by wall with weights up and experience back; {steps} steps",
    )


def _check(rollout: Rollout, peer: TorchLoop, policy: PolicyWeights) -> None:
    start = _starts(CHECK_ENVS, CHECK_STEPS)
    seen = rollout.run([policy], start[None], CHECK_STEPS, KEYS, stage_round=0, trace=True)
    walk = walk_actions(rollout.tape, start, seen.action)
    assert seen.trace is not None
    for name in walk.result.dtype.names or ():
        exact = rollout.device.correctly_rounded
        if exact and not np.array_equal(walk.result[name], seen.trace[name]):
            raise AssertionError(f"{rollout.device.name}: {name} differs from NumPy; not timed")
    same = (peer.play(start, CHECK_STEPS) == seen.action).all(axis=-1)
    # an episode that once chose differently may go another way from there
    together = np.logical_and.accumulate(np.vstack([np.ones_like(same[:1]), same[:-1]]), axis=0)
    if same[together].mean() < AGREEMENT:
        raise AssertionError(f"{rollout.device.name}: other actions than torch; not timed")
