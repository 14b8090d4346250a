"""Planned and measured bytes, and time, over bars, environments and skills: all grow linearly.

One axis varies at a time. Planned is what `Launch.planned` says before anything is allocated;
measured is what the device (NVIDIA: nvidia-smi) or the process (CPU: resident pages) holds more
while the launch's arrays live. Lines are least squares; R2 says how straight the points are.
"""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backtest import rng
from backtest.agent.random_policy import random_policy, random_scenario
from backtest.agent.weights import N_BAR
from backtest.config import Network
from backtest.market.layout import BAR, BRANCHES, STATE, Array
from backtest.market.tape import Tape
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.memory import told_bytes
from opencl.rollout import Launch, PolicySkills, Rollout, Shape
from opencl.simulate import DeviceTape, simulator
from tests.bench.rows import Row
from tests.bench.scene import gaussian_tape
from tests.snapshots import snapshot_of

HIDDEN, ATOMS = (128, 128), 51
S, H, L = 8, 6, 8  # of the scenario network
KEYS = rng.key(0, "BENCH", "memory")[None]
STEPS = 16
AXES = {
    "gpu": {
        "bars": (100_000, 1_000_000, 3_000_000, 10_000_000),
        "envs": (16_384, 65_536, 131_072, 262_144),
        "slots": (8, 64, 128, 256),
    },
    "cpu": {
        "bars": (10_000, 30_000, 60_000, 100_000),
        "envs": (256, 512, 1024, 2048),
        "slots": (8, 32, 64, 128),
    },
}
FIXED = {"gpu": (1_000_000, 131_072), "cpu": (10_000, 256)}  # bars and envs off their own axis
REPEATS = 3


@dataclass(frozen=True)
class Point:
    """One launch: bytes, and seconds of its kernels."""

    planned: int
    measured: int
    seconds: float


class Holding(Rollout):
    """A rollout that keeps the bar tables of its last launch, to be measured."""

    def _tables(self, *given: Any) -> Any:
        self.held = super()._tables(*given)
        return self.held


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    kind = "gpu" if device.kind == "gpu" else "cpu"
    bars, envs = FIXED[kind]
    axes = {name: sizes[:3] if quick else sizes for name, sizes in AXES[kind].items()}
    check(device)
    rows = line(
        "bars", [mlp(device, n, envs) for n in axes["bars"]], axes["bars"], f"{envs:,} envs"
    )
    rows += line(
        "envs", [mlp(device, bars, n) for n in axes["envs"]], axes["envs"], f"{bars:,} bars"
    )
    few = min(envs, 16_384)
    rows += line(
        "slots", [skilled(device, n, few) for n in axes["slots"]], axes["slots"], f"{few:,} envs"
    )
    rows.append(market(device, axes["bars"][-1], envs))
    return rows


def check(device: Device) -> None:
    """Compare launches whose tables fit with those of a small budget; a difference is an error."""
    tape, states = scene(2000)
    policy, shape = random_policy(HIDDEN, ATOMS), Shape(HIDDEN, ATOMS, tuple(BRANCHES))
    start = np.random.default_rng(0).integers(0, 2000 - STEPS, (1, 64))
    whole = Rollout(device, tape, states, shape).launch(
        [policy], start, STEPS, KEYS, stage_round=0, trace=True
    )
    budget = whole.planned["tables"] // 50
    small = Rollout(device, tape, states, shape, budget=budget).launch(
        [policy], start, STEPS, KEYS, stage_round=0, trace=True
    )
    if len(small.events) < 10 or small.planned["tables"] > budget:
        raise AssertionError(f"{device.name}: the budget of {budget} bytes was not kept")
    a, b = whole.read(), small.read()
    assert a.trace is not None and b.trace is not None
    if a.trace.tobytes() != b.trace.tobytes():
        raise AssertionError(f"{device.name}: a small budget changed the result; not timed")


def scene(bars: int) -> tuple[Tape, Array]:
    """Return a tape and states; a hundred thousand bars are repeated."""
    tape = gaussian_tape(min(bars, 100_000))
    times = -(-bars // len(tape.bars))
    rows = np.tile(tape.bars, times)[:bars]
    x = np.random.default_rng(0).normal(0, 1, (len(tape.bars), N_BAR)).astype(np.float32)
    aux = np.tile(tape.aux, times)[:bars]
    return Tape(0, rows, tape.params, aux), np.tile(x, (times, 1))[:bars]


def mlp(device: Device, bars: int, envs: int) -> Point:
    """Walk random episodes under the standard network."""
    tape, states = scene(bars)
    policy, shape = random_policy(HIDDEN, ATOMS), Shape(HIDDEN, ATOMS, tuple(BRANCHES))

    def launch(rollout: Rollout) -> Launch:
        start = np.random.default_rng(0).integers(0, bars - STEPS, (1, envs))
        return rollout.launch(
            [policy], start, STEPS, KEYS, stage_round=0, portfolio=True, timed=True
        )

    return point(device, tape, states, shape, launch)


def skilled(device: Device, slots: int, envs: int) -> Point:
    """Walk the scenario network with a full task bank and a full step bank of so many skills."""
    bars = 4000
    tape, states = scene(bars)
    network = Network(kind="scenario", hidden=HIDDEN, atoms=ATOMS, scenarios=S, horizon=H, latent=L)
    policy = random_scenario(network)
    shape = Shape(HIDDEN, ATOMS, tuple(BRANCHES), "scenario", S, H, L, slots=slots)
    draw = np.random.default_rng(slots)
    sizes = {"task": 3 * S * L, "step": S * H * L}
    rows = {
        name: draw.normal(0, 1, (2 * slots, dim)).astype(np.float32) for name, dim in sizes.items()
    }
    banks = {
        name: snapshot_of(rows[name], slots, dim, 2, 0.3, strength=0.1, eligible=1.0)
        for name, dim in sizes.items()
    }

    def launch(rollout: Rollout) -> Launch:
        start = np.random.default_rng(0).integers(0, bars - STEPS, (1, envs))
        return rollout.launch(
            [policy], start, STEPS, KEYS, stage_round=0, skills=[PolicySkills(**banks)], timed=True
        )

    return point(device, tape, states, shape, launch)


def point(
    device: Device,
    tape: Tape,
    states: Array,
    shape: Shape,
    launch: Callable[[Rollout], Launch],
) -> Point:
    """Run a launch several times; bytes are those of the first, seconds the least."""
    gc.collect()
    before = used(device)
    rollout = Holding(device, tape, states, shape)
    first = launch(rollout)
    first.event.wait()
    measured = used(device) - before
    planned = first.planned.total
    seconds = [kernel_seconds(first)]
    del first, rollout.held
    for _ in range(REPEATS):
        again = launch(rollout)
        again.event.wait()
        seconds.append(kernel_seconds(again))
        del again
    return Point(planned, measured, min(seconds))


def market(device: Device, bars: int, envs: int) -> Row:
    """The market alone over the longest tape."""
    tape, _ = scene(bars)
    envs = -(-envs // 64) * 64
    before = used(device)
    held = DeviceTape(device, tape)
    start = np.random.default_rng(0).integers(0, bars - STEPS, envs).astype(np.int32)
    first, rewards = upload(device, start), empty(device, (STEPS, envs), np.float32)
    final = empty(device, envs, STATE.dtype)
    planned = held.nbytes + first.nbytes + rewards.nbytes + final.nbytes
    seconds = []
    for _ in range(REPEATS + 1):
        event = simulator(device).random_into(held, first, rewards, final, KEYS[0], 0, timed=True)
        event.wait()
        seconds.append((event.profile.end - event.profile.start) * 1e-9)
    measured = used(device) - before
    return Row(
        f"memory, market alone, {bars:,} bars, {envs:,} envs",
        envs * STEPS / min(seconds),
        "steps/s",
        f"planned {told_bytes(planned)}, measured {told_bytes(max(measured, 0))}; "
        f"{BAR.dtype.itemsize + 4} B a bar, {STATE.dtype.itemsize + 4 + 4 * STEPS} B an env",
    )


def line(axis: str, points: Sequence[Point], sizes: Sequence[int], beside: str) -> list[Row]:
    """Return a row a point, and one with the lines through them."""
    network = "mlp" if axis != "slots" else "scenario, both banks"
    rows = []
    for size, point in zip(sizes, points, strict=True):
        what, place = f"memory, {size:,} {axis}", {"axis": axis, "x": size}
        seen, setting = f"measured {point.measured / 2**20:,.0f} MiB", f"{beside}, {STEPS} steps"
        planned, took = point.planned / 2**20, 1e3 * point.seconds
        series = f"planned bytes, {network}"
        rows += [
            Row(what, planned, "MiB", f"planned; {seen}; {setting}", series=series, **place),
            Row(f"{what}: kernels", took, "ms", setting, series=f"kernels, {network}", **place),
        ]
    columns = {
        "planned": ([p.planned for p in points], "B", 1.0),
        "measured": ([p.measured for p in points], "B", 1.0),
        "time": ([p.seconds for p in points], "ns", 1e9),
    }
    told = []
    slopes = {}
    for name, (values, unit, factor) in columns.items():
        slope, straight = fit(sizes, values)
        slopes[name] = slope * factor
        told.append(f"{name} {slope * factor:,.4g} {unit} (R2 {straight:.4f})")
    what = f"memory, line over {axis}"
    return [*rows, Row(what, slopes["planned"], f"B/{axis[:-1]}", ", ".join(told))]


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return slope and R2 of the least-squares line."""
    slope, offset = np.polyfit(x, y, 1)
    rest = np.asarray(y) - (slope * np.asarray(x) + offset)
    spread = np.var(y)
    return float(slope), float(1 - np.var(rest) / spread) if spread else 1.0


def used(device: Device) -> int:
    """Return the bytes in use: of the device where its driver says, else of this process."""
    if device.nvidia:
        asked = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        return int(said.split()[0]) * 2**20
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def kernel_seconds(launch: Launch) -> float:
    """Return what all kernels of a finished, timed launch took."""
    events = (*launch.bar_events, *launch.events)
    return sum((e.profile.end - e.profile.start) * 1e-9 for e in events)
