"""Rollout and experience into torch, by every way that this machine has; and weights to the device.

The ways take turns within each repetition. Before the clock starts all must hand over the same
numbers as plain copies do.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.columns import host
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR, PolicyWeights
from backtest.market.layout import BRANCHES
from opencl.buffers import upload
from opencl.devices import Device
from opencl.exchange import Copies, Exchange, exchange, torch_device
from opencl.exchange import ways as faster
from opencl.rollout import Rollout, Shape
from opencl.rollout.packing import pack
from tests.bench.rows import REPEATS, Row, wall_seconds
from tests.bench.scene import gaussian_tape

HIDDEN, ATOMS = (128, 128), 51
BARS = 20_000
GPU_ENVS, CPU_ENVS = (4096, 16_384), (64, 1024)
KEYS = rng.key(0, "BENCH", "transfer")[None]
COLUMNS = ("action", "reward", "end", "portfolio", "equity")  # what the learner gets


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    envs = GPU_ENVS if device.kind == "gpu" else CPU_ENVS
    tape = gaussian_tape(BARS)
    x = np.random.default_rng(0).normal(0, 1, (BARS, N_BAR)).astype(np.float32)
    rollout = Rollout(device, tape, x, Shape(HIDDEN, ATOMS, tuple(BRANCHES)))
    policy = random_policy(HIDDEN, ATOMS)
    ways = _ways(device)
    rows = [_weights(rollout, policy)]
    for n in envs[:1] if quick else envs:
        rows += _rounds(rollout, policy, ways, n, quick)
    return rows


def _ways(device: Device) -> list[Exchange]:
    """Return plain copies, the chosen way, and what is between them."""
    learner = torch_device(device)
    best = exchange(device, learner)
    others = [way(device, learner) for way in faster(device, learner)]
    names = [way.way for way in others]
    between = others[names.index(best.way) + 1 :] if best.way in names else []
    return [Copies(device, learner), *between, *([best] if best.way in names else [])]


class Round:
    """One launch and its hand-over, with the time that each part took."""

    def __init__(self, rollout: Rollout, policy: PolicyWeights, n: int, steps: int) -> None:
        self.rollout, self.policy, self.steps = rollout, policy, steps
        self.start = np.random.default_rng(n).integers(0, BARS - steps, (1, n))

    def play(self, way: Exchange) -> tuple[list[Any], float, float]:
        """Return tensors on the learner's device, seconds of all, and of the hand-over alone."""
        begin = time.perf_counter()
        launch = self.rollout.launch(
            [self.policy],
            self.start,
            self.steps,
            KEYS,
            stage_round=0,
            epsilon=0.1,
            portfolio=True,
            to=way,
        )
        launch.event.wait()
        walked = time.perf_counter()
        found = launch.read()
        tensors = [_tensor(getattr(found, name)) for name in COLUMNS]
        if way.learner != "cpu":
            import torch

            torch.cuda.synchronize(way.learner)
        end = time.perf_counter()
        return tensors, end - begin, end - walked


def _tensor(values: Any) -> Any:
    import torch

    return torch.from_numpy(values) if isinstance(values, np.ndarray) else values


def _rounds(
    rollout: Rollout, policy: PolicyWeights, ways: list[Exchange], n: int, quick: bool
) -> list[Row]:
    device = rollout.device
    total = 2**21 if device.kind == "gpu" else 2**16
    play = Round(rollout, policy, n, max(32, min(512, (total // 8 if quick else total) // n))).play
    wanted = [values.cpu().numpy() for values in play(ways[0])[0]]
    for way in ways[1:]:
        for name, values, right in zip(COLUMNS, play(way)[0], wanted, strict=True):
            if not np.array_equal(host(values), right):
                raise AssertionError(f"{device.name}: {name} by {way.way} differs; not timed")
    seconds: dict[str, list[tuple[float, float]]] = {way.way: [] for way in ways}
    for _ in range(REPEATS + 1):
        for way in ways:
            seconds[way.way].append(play(way)[1:])
    size, count = sum(values.nbytes for values in wanted), wanted[1].size
    rows = []
    for way in ways:
        whole, handed = (median(part) for part in zip(*seconds[way.way][1:], strict=True))
        rows.append(
            Row(
                f"rollout and experience to {way.learner}, {way.way}, {n:,} envs",
                count / whole,
                "steps/s",
                f"{size / 1e6:,.1f} MB handed over in {handed * 1e3:,.2f} of {whole * 1e3:,.1f} ms"
                + ("" if way.shared else f", {size / handed / 1e9:,.1f} GB/s"),
            )
        )
    return rows


def _weights(rollout: Rollout, policy: PolicyWeights) -> Row:
    arrays = list(pack(rollout.made.sizes, [policy]).values())
    size = sum(array.nbytes for array in arrays)
    seconds = wall_seconds(lambda: [upload(rollout.device, array) for array in arrays])
    detail = f"{size / 1e3:,.0f} kB in {len(arrays)} arrays, {seconds * 1e3:,.2f} ms"
    return Row("weights of a network to the device", size / seconds, "B/s", detail)
