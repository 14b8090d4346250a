"""Out of sample: folds x seeds x variants in one launch, beside a launch for every fold and seed.

Test windows of different length, price base and states; every seed of a fold has its own weights,
its variants share them. Both ways end with traces on the host, as `opencl.plays` needs them; before
the clock starts they must be equal in every bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from backtest import rng
from backtest.agent.kinds import Weights
from backtest.agent.random_policy import random_policy, random_scenario
from backtest.agent.weights import N_BAR
from backtest.config import Network
from backtest.market.layout import BRANCHES, Array
from backtest.market.tape import Tape
from opencl.collector import greedy
from opencl.devices import Device
from opencl.rollout import PolicySkills, Rollout, Shape, Windows
from tests.bench import scenario
from tests.bench.rows import Row, wall_seconds
from tests.bench.scene import gaussian_tape

HIDDEN, ATOMS = (128, 128), 51
S, H, L = 8, 6, 8  # of the scenario network
KEY = rng.key(0, "BENCH", "evaluation")
STEPS = {"gpu": 1000, "cpu": 600}  # of the longest window
FOLDS, SEEDS = {"gpu": 10, "cpu": 4}, {"gpu": 10, "cpu": 3}
QUICK = 4  # times fewer steps


@dataclass(frozen=True)
class Cast:
    """One episode: a policy with its skills in the window of a fold."""

    fold: int
    seed: int
    policy: Weights
    skills: PolicySkills | None


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    kind = "gpu" if device.kind == "gpu" else "cpu"
    steps, folds, seeds = STEPS[kind] // (QUICK if quick else 1), FOLDS[kind], SEEDS[kind]
    windows = [window(fold, steps) for fold in range(folds)]
    rows = []
    for network in ("mlp",) if quick else ("mlp", "scenario"):
        shape, casts = variants(network, folds, seeds, windows[0][1])
        rows += measure(device, network, shape, windows, casts)
    return rows


def window(fold: int, steps: int) -> tuple[Tape, Array]:
    """Return the bars and states of a test window: up to a tenth shorter, with its own base."""
    tape = gaussian_tape(steps + 1 - fold % 7 * steps // 64, seed=fold)
    params = np.array(tape.params)
    params["base"] += 31.25 * fold
    x = np.random.default_rng(fold).normal(0, 1, (len(tape.bars), N_BAR)).astype(np.float32)
    return Tape(tape.start, tape.bars, params, tape.aux), x


def variants(network: str, folds: int, seeds: int, x: Array) -> tuple[Shape, list[Cast]]:
    """Return the shape, and every variant of every seed of every fold."""
    places = [(fold, seed) for fold in range(folds) for seed in range(seeds)]
    if network == "mlp":
        shape = Shape(HIDDEN, ATOMS, tuple(BRANCHES))
        policies = [random_policy(HIDDEN, ATOMS, i) for i in range(2 * len(places))]
        pairs = zip(places * 2, policies, strict=True)  # the policy and what was trained on
        return shape, sorted(
            (Cast(*at, p, None) for at, p in pairs), key=lambda c: (c.fold, c.seed)
        )
    settings = Network(
        kind="scenario", hidden=HIDDEN, atoms=ATOMS, scenarios=S, horizon=H, latent=L
    )
    shape = Shape(HIDDEN, ATOMS, tuple(BRANCHES), "scenario", S, H, L, slots=S)
    casts = []
    for i, at in enumerate(places):
        policy = random_scenario(settings, i)
        banks = scenario.variants(policy, x[:256], S)
        casts += [Cast(*at, policy, skills) for skills in banks.values()]
    return shape, casts


def measure(
    device: Device,
    network: str,
    shape: Shape,
    windows: list[tuple[Tape, Array]],
    casts: list[Cast],
) -> list[Row]:
    """Compare both ways, then time them."""
    places = sorted({(cast.fold, cast.seed) for cast in casts})

    def apart() -> list[Array]:
        return [
            trace
            for fold, seed in places
            for trace in launch(
                device,
                shape,
                [windows[fold]],
                [c for c in casts if (c.fold, c.seed) == (fold, seed)],
                {fold: 0},
            )
        ]

    def together() -> list[Array]:
        return launch(device, shape, windows, casts, {i: i for i in range(len(windows))})

    once = together()  # compiles
    begin = time.perf_counter()
    many = apart()
    slow = time.perf_counter() - begin
    for a, b in zip(many, once, strict=True):
        if a.tobytes() != b.tobytes():
            raise AssertionError(f"{device.name}: one launch differs from many; not timed")
    # a hundred launches are their own repetition
    seconds = {"one launch": wall_seconds(together, 3), "a launch a fold and seed": slow}
    steps = sum(len(windows[cast.fold][0].bars) - 1 for cast in casts)
    bytes_ = sum(tape.bars.nbytes + tape.aux.nbytes + x.nbytes for tape, x in windows)
    what = f"{len(windows)} folds x {len(places) // len(windows)} seeds x "
    what += f"{len(casts) // len(places)} variants"
    made = {"one launch": (1, 1), "a launch a fold and seed": (len(places),) * 2}
    rows = []
    for name, wall in seconds.items():
        count, uploads = made[name]
        sent = bytes_ * (1 if uploads == 1 else len(places) // len(windows))
        rows.append(
            Row(
                f"evaluation, {network}, {name}",
                len(casts) / wall,
                "episodes/s",
                f"{what}: {wall:.3g} s for {steps:,} steps; launches {count}, window uploads "
                f"{uploads} ({sent / 1e6:,.1f} MB), traces read back",
            )
        )
    return rows


def launch(
    device: Device,
    shape: Shape,
    windows: list[tuple[Tape, Array]],
    casts: list[Cast],
    place: dict[int, int],
) -> list[Array]:
    """Upload windows, play all casts in one launch, and return the trace of each."""
    joined = Windows.joined(windows)
    at = np.array([place[cast.fold] for cast in casts])
    skills = [cast.skills for cast in casts]
    out = greedy(
        Rollout(device, joined.tape, joined.states, shape),
        [cast.policy for cast in casts],
        joined.first[at, None],
        joined.steps[at],
        np.repeat(KEY[None], len(casts), 0),
        base=joined.base[at],
        trace=True,
        skills=skills,
        slots=any(skills),
    )
    assert out.trace is not None
    return [out.trace[: joined.steps[w], i] for i, w in enumerate(at)]
