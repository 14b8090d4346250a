"""Policy and market in one kernel, beside the same loop of NumPy and torch on the CPU.

The standard network (128-128, 51 atoms, all 13 actions) on the same bars and episodes, in float32
and, where there are tensor cores, in bf16; before the clock starts all must choose the same actions
and the market must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.actions import SPANS
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, PolicyWeights, assemble
from backtest.market.layout import (
    BAR_SLOTS,
    BRANCHES,
    N_ACTIONS,
    N_PORTFOLIO,
    PORTFOLIO_SLOTS,
    STATE_DIM,
    Array,
    End,
)
from backtest.market.portfolio import portfolio_state
from backtest.market.step import reset, step
from backtest.market.tape import Tape
from backtest.market.walk import walk_actions
from opencl.devices import Device
from opencl.rollout import Rollout, Shape
from opencl.tensor_probe import has_tensor_cores
from tests.bench.rows import Row, device_seconds, wall_seconds
from tests.bench.scene import gaussian_tape

HIDDEN, ATOMS = (128, 128), 51
BARS = 20_000
GPU_ENVS, CPU_ENVS = (2048, 4096, 16_384, 65_536, 262_144), (64, 256, 1024)
QUICK_ENVS = {"gpu": (4096, 65_536), "cpu": (256,)}
# FLOP/s that OpenCL reaches with nothing but products, measured; bf16 by mma.sync.
PEAKS = {"H200": {"fp32": 58e12, "bf16": 623e12}}
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
    peaks = next((peak for name, peak in PEAKS.items() if name in rollout.device.name), {})
    share = f", {flops / peaks[precision]:.0%} of the peak" if peaks else ""
    return Row(
        f"rollout, {precision}, {n:,} envs",
        rate,
        "steps/s",
        f"{flops / 1e12:,.2f} TFLOP/s{share} ({KERNEL_MACS:,} multiply-adds a step); "
        f"{n * steps / wall:,.0f} by wall with weights up and experience back; {steps} steps",
    )


class TorchLoop:
    """What one would write without kernels: NumPy market and torch policy, step after step."""

    def __init__(self, tape: Tape, x: Array, policy: PolicyWeights) -> None:
        import torch

        first = np.empty((HIDDEN[0], STATE_DIM), np.float32)
        first[:, list(BAR_SLOTS)] = policy.W1_bar
        first[:, list(PORTFOLIO_SLOTS)] = policy.W1_portfolio
        arrays = first, policy.b1, policy.W2, policy.b2, policy.W_head, policy.b_head, policy.z
        self.weights = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        self.tape, self.x = tape, x

    def choose(self, state: Array) -> Array:
        """Return the greedy action of each state, uint8[n, 4]."""
        import torch

        w1, b1, w2, b2, w3, b3, z = self.weights
        with torch.inference_mode():
            hidden = torch.relu(torch.addmm(b1, torch.from_numpy(state), w1.T))
            hidden = torch.relu(torch.addmm(b2, hidden, w2.T))
            logits = torch.addmm(b3, hidden, w3.T).view(-1, N_ACTIONS, ATOMS)
            q = torch.softmax(logits, dim=2) @ z
            best = [q[:, start:stop].argmax(1) for start, stop in SPANS]
            return torch.stack(best, 1).numpy().astype(np.uint8)

    def play(self, start: Array, steps: int) -> Array:
        """Walk greedy episodes; return the actions, uint8[steps, n, 4]."""
        p, n = self.tape.params, len(start)
        state, chosen = reset(p, n), []
        alive = np.ones(n, bool)
        for t in range(steps):
            bar, clock = start + t, np.full(n, t, np.int32)
            now = self.tape.at(bar)
            action = self.choose(assemble(self.x[bar], portfolio_state(p, state, now, clock)))
            last, aux = np.full(n, t == steps - 1), self.tape.aux[bar]
            new, result = step(p, state, action, now, self.tape.at(bar + 1), clock, last, aux)
            state = np.where(alive, new, state)
            alive &= result["end"] == End.RUNNING
            chosen.append(action)
        return np.stack(chosen)


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
