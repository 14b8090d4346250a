"""Policy and market in one kernel, beside the same loop of NumPy and torch on the CPU.

The standard network (128-128, 51 atoms, all 13 actions) on the same bars and episodes, in float32
and, where there are tensor cores, in bf16; before the clock starts all must choose the same actions
and the market must be equal.
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
from opencl.tensor_probe import has_tensor_cores
from tests.bench.peers.numpy_torch import TorchLoop, fastest_threads
from tests.bench.roofline import share
from tests.bench.rows import Row, device_seconds, wall_seconds
from tests.bench.scene import gaussian_tape

HIDDEN, ATOMS = (128, 128), 51
BARS = 20_000
GPU_ENVS, CPU_ENVS = (2048, 4096, 16_384, 65_536, 262_144), (64, 256, 1024)
QUICK_ENVS = {"gpu": (4096, 65_536), "cpu": (256,)}
# Of a GPU; float32 where it is at its best.
GOALS = {
    ("fp32", 65_536): "rollout_fp32",
    ("bf16", 65_536): "rollout_bf16",
    ("bf16", 4096): "rollout_bf16_small",
}
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
    rollouts = {"fp32": rollout}
    if has_tensor_cores(device):
        rollouts["bf16"] = rollout.as_variant("tensor")
    peer = TorchLoop(tape, x, policy)
    sizes, rows = QUICK_ENVS[device.kind] if quick else envs, []
    for precision, one in rollouts.items():
        _check(one, peer, policy, precision)
        rows += [_kernel(one, policy, n, quick, precision) for n in sizes]
    n, steps = CPU_ENVS[-1], 8 if quick else 32
    with fastest_threads(lambda: peer.play(_starts(n, steps), steps)):
        seconds = wall_seconds(lambda: peer.play(_starts(n, steps), steps), 3)
    best = max(row.figure for row in rows)
    rate = n * steps / seconds
    detail = f"{MACS:,} multiply-adds a step; the rollout is {best / rate:,.1f} times as fast"
    return [*rows, Row(f"NumPy market + torch policy, {n:,} envs", rate, "steps/s", detail)]


def _starts(n: int, steps: int) -> Array:
    return np.random.default_rng(n).integers(0, BARS - steps, n)


def _kernel(rollout: Rollout, policy: PolicyWeights, n: int, quick: bool, precision: str) -> Row:
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
    flops = 2 * KERNEL_MACS * rate
    return Row(
        f"rollout, {precision}, {n:,} envs",
        rate,
        "steps/s",
        f"{flops / 1e12:,.2f} TFLOP/s ({KERNEL_MACS:,} multiply-adds a step); "
        f"{n * steps / wall:,.0f} by wall with weights up and experience back; {steps} steps",
        series=f"rollout, {precision}",
        axis="envs",
        x=n,
        roofline=share(rollout.device, precision, flops),
        goal=GOALS.get((precision, n), ""),
    )


def _check(rollout: Rollout, peer: TorchLoop, policy: PolicyWeights, precision: str) -> None:
    start = _starts(CHECK_ENVS, CHECK_STEPS)
    seen = rollout.run([policy], start[None], CHECK_STEPS, KEYS, stage_round=0, trace=True)
    walk = walk_actions(rollout.tape, start, seen.action)
    assert seen.trace is not None
    for name in walk.result.dtype.names or ():
        exact = rollout.device.correctly_rounded
        if exact and not np.array_equal(walk.result[name], seen.trace[name]):
            raise AssertionError(f"{rollout.device.name}: {name} differs from NumPy; not timed")
    same = peer.play(start, CHECK_STEPS) == seen.action
    # an episode that once chose differently may go another way from there
    before = np.vstack([np.ones_like(same[:1]), same[:-1]]).all(axis=-1)
    right = same[np.logical_and.accumulate(before, axis=0)]
    # float32 by whole actions; bf16, which decides near ties otherwise, by decisions
    if (right.all(axis=-1) if precision == "fp32" else right).mean() < AGREEMENT:
        raise AssertionError(f"{rollout.device.name}, {precision}: other actions than torch")
