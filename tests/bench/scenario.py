"""The scenario network in the loop, without skill banks, with each of them, and with both.

Time is what all kernels of a launch took, those that fill the bar tables included; forecasts of the
frozen forecaster are kept between launches, as in training. The four variants take turns. Overheads
compare the cheapest launches: by kernel time on a GPU, by CPU seconds on a CPU, where what runs
beside would count otherwise. On a GPU float32 and bf16 are measured, bf16 also where episodes are
spread over so many bars that they share none, and with banks of other sizes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

import numpy as np

from backtest import rng
from backtest.agent.random_policy import random_scenario
from backtest.agent.scenario_weights import (
    ScenarioWeights,
    bar_context,
    forward,
    step_context,
    task_context,
)
from backtest.agent.weights import N_BAR
from backtest.config import Network
from backtest.market.layout import BRANCHES, N_PORTFOLIO, Array
from opencl.devices import Device
from opencl.rollout import Launch, PolicySkills, Rollout, Shape
from opencl.rollout.program import collection_variant
from opencl.tensor_probe import has_tensor_cores
from tests.bench.rows import REPEATS, Row
from tests.bench.scene import gaussian_tape
from tests.snapshots import snapshot_of

SIZES = {"small": (8, 6, 8), "original": (21, 12, 16)}  # S, H, L
HIDDEN, ATOMS, FORECASTER = (128, 128), 51, 128
BARS, MANY_BARS = 4000, 100_000
GPU_ENVS, CPU_ENVS = (16_384, 65_536), (256, 1024)
GPU_SLOTS, CPU_SLOTS = (8, 32, 64), (8,)  # beside a bank of one slot a scenario
THRESHOLD = {"task": 0.5, "step": 0.3}  # about a fifth of the random contexts find a skill
SAMPLE, SAMPLE_STEPS = 32, 4  # compared with NumPy before the clock starts
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # of the largest action value
KEYS = rng.key(0, "BENCH", "scenario")[None]
GOAL = 15  # percent


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    gpu = device.kind == "gpu"
    envs = GPU_ENVS if gpu else CPU_ENVS
    rows: list[Row] = []
    for name, (scenarios, horizon, latent) in SIZES.items():
        network = Network(
            kind="scenario",
            hidden=HIDDEN,
            atoms=ATOMS,
            scenarios=scenarios,
            horizon=horizon,
            latent=latent,
            forecaster_hidden=FORECASTER,
        )
        best = "bf16" if has_tensor_cores(device) else "fp32"
        for precision in ("fp32",) if best == "fp32" else ("fp32", "bf16"):
            scene = Scene(device, network, precision)
            scene.check()
            for n in envs[:1] if quick else envs:
                rows += scene.rows(name, n, quick)
        if quick or name == "small":
            continue
        if gpu:
            rows += Scene(device, network, best, MANY_BARS).rows(name, envs[0], quick)
        for slots in GPU_SLOTS if gpu else CPU_SLOTS:
            rows += Scene(device, network, best, slots=slots).rows(name, envs[-1], quick)
    return rows


class Scene:
    """A random policy of one size, its market, and a full bank of each kind."""

    def __init__(
        self,
        device: Device,
        network: Network,
        precision: Literal["fp32", "bf16"],
        bars: int = BARS,
        slots: int = 0,
    ) -> None:
        """Make everything; slots 0: as many as there are scenarios in each bank."""
        draw = np.random.default_rng(0)
        self.x = draw.normal(0, 1, (bars, N_BAR)).astype(np.float32)
        self.policy = random_scenario(network)
        self.network, self.precision, self.slots = network, precision, slots or network.scenarios
        shape = Shape(
            network.hidden,
            network.atoms,
            tuple(BRANCHES),
            "scenario",
            network.scenarios,
            network.horizon,
            network.latent,
            slots=self.slots,
        )
        variant = collection_variant(device, shape, precision)
        self.rollout = Rollout(device, gaussian_tape(bars), self.x, shape, variant)
        self.skills = variants(self.policy, self.x[:256], self.slots)

    def launch(self, n: int, steps: int, skills: PolicySkills | None, **asked: bool) -> Launch:
        """Enqueue n greedy episodes from random bars."""
        start = np.random.default_rng(n).integers(0, len(self.x) - steps, (1, n))
        return self.rollout.launch(
            [self.policy], start, steps, KEYS, stage_round=0, skills=[skills], **asked
        )

    def check(self) -> None:
        """Compare action values with NumPy's, with both banks; a difference is an error."""
        skills = self.skills["both"]
        assert skills is not None
        seen = self.launch(
            SAMPLE, SAMPLE_STEPS, skills, values=True, portfolio=True, slots=True
        ).read()
        assert seen.values is not None and seen.portfolio is not None and seen.slots is not None
        for t in range(SAMPLE_STEPS):
            x, portfolio = self.x[seen.start + t], np.ascontiguousarray(seen.portfolio[t])
            q = forward(self.policy, x, portfolio, task=skills.task, step=skills.step)
            gap = np.abs(q - seen.values[t]).max(axis=1) / np.abs(q).max()
            # a cosine at the threshold may go either way
            if np.mean(gap > TOLERANCE[self.precision]) > 0.02:
                raise AssertionError(f"{self.rollout.device.name}: other values; not timed")

    def rows(self, name: str, n: int, quick: bool) -> list[Row]:
        """Measure the four variants with n episodes."""
        gpu = self.rollout.device.kind == "gpu"
        total = 2**22 if gpu else 2**15
        steps = max(16, min(256, (total // 4 if quick else total) // n))
        seconds: dict[str, list[float]] = {variant: [] for variant in self.skills}
        cost: dict[str, list[float]] = {variant: [] for variant in self.skills}
        for turn in range(REPEATS + 1):
            for variant, skills in self.skills.items():
                clock = time.process_time()
                launch = self.launch(n, steps, skills, timed=True)
                launch.event.wait()
                if turn:  # the first does not count
                    spent = time.process_time() - clock
                    seconds[variant].append(kernel_seconds(launch))
                    cost[variant].append(seconds[variant][-1] if gpu else spent)
        s, h, size = self.network.scenarios, self.network.horizon, self.network.latent
        rows = []
        for variant, skills in self.skills.items():
            over = 100 * (min(cost[variant]) / min(cost["none"]) - 1)
            hits = (self.launch(n, steps, skills, slots=True).read().slots >= 0).mean((0, 1))
            detail = f"{steps} steps, {n * steps / len(self.x):,.1f} a bar"
            if skills is not None:
                detail = f"{over:+.1f} % (goal < {GOAL} %), hits {hits[0]:.0%} task, "
                detail += f"{hits[1]:.0%} step; {self.slots} skills a bank"
            rate = n * steps / median(seconds[variant])
            banks = {"none": "no bank", "both": "both banks"}.get(variant, f"{variant} bank")
            what = f"scenario rollout S {s} H {h} L {size} ({name}), {self.precision}, {banks}, "
            what += f"{n:,} envs" + (f" on {len(self.x):,} bars" if len(self.x) > BARS else "")
            what += f", {self.slots} slots" if self.slots != s else ""
            rows.append(Row(what, rate, "steps/s", detail, **self.curve(name, banks, n)))
            if variant == "both" and self.aimed(name, n):
                rows[-1] = replace(rows[-1], goal="scenario")
                added = f"{what}: time that the banks add"
                rows.append(Row(added, over, "%", goal="scenario_overhead"))
        return rows

    def aimed(self, name: str, n: int) -> bool:
        """Return whether the goals are for this scene: the original sizes, most episodes."""
        best = "bf16" if has_tensor_cores(self.rollout.device) else "fp32"
        envs = GPU_ENVS if self.rollout.device.kind == "gpu" else CPU_ENVS
        usual = self.slots == self.network.scenarios and len(self.x) == BARS
        return usual and (name, self.precision, n) == ("original", best, envs[-1])

    def curve(self, name: str, banks: str, n: int) -> dict[str, Any]:
        """Return the curve that a row is a point of, over episodes or slots; two variants do."""
        series = f"scenario ({name}), {self.precision}, {banks}"
        if len(self.x) > BARS or banks not in ("no bank", "both banks"):
            return {}
        if self.slots != self.network.scenarios:
            return {"series": series, "axis": "slots", "x": self.slots}
        return {"series": series, "axis": "envs", "x": n}


def variants(policy: ScenarioWeights, x: Array, slots: int) -> dict[str, PolicySkills | None]:
    """Return none, task, step and both, with keys from contexts of states x and random accounts."""
    portfolio = np.random.default_rng(1).normal(0, 1, (len(x), N_PORTFOLIO)).astype(np.float32)
    contexts = {
        "task": task_context(policy, x, portfolio),
        "step": step_context(policy, bar_context(policy, x)),
    }
    banks = {
        name: snapshot_of(
            rows, slots, rows.shape[1], 2, THRESHOLD[name], strength=0.1, eligible=1.0
        )
        for name, rows in contexts.items()
    }
    return {
        "none": None,
        "task": PolicySkills(task=banks["task"]),
        "step": PolicySkills(step=banks["step"]),
        "both": PolicySkills(**banks),
    }


def kernel_seconds(launch: Launch) -> float:
    """Return what all kernels of a finished, timed launch took."""
    events: Sequence[Any] = (*launch.bar_events, *launch.events)
    return sum((e.profile.end - e.profile.start) * 1e-9 for e in events)
