"""The rollout beside a vectorised Python environment of gymnasium and a torch policy.

The same market (NumPy) and the same network; before the clock starts all rewards and actions of an
episode must equal the kernel's.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.vector.utils import batch_space

from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR
from backtest.market.layout import BRANCHES, STATE_DIM, Array
from backtest.market.portfolio import STATE_LIMIT
from backtest.market.tape import Tape
from opencl.devices import Device
from opencl.rollout import Rollout, Shape
from tests.bench import rollout as ours
from tests.bench.peers.numpy_torch import NumpyMarket, TorchPolicy, fastest_threads
from tests.bench.rows import TIMES, Row, alternating
from tests.bench.scene import gaussian_tape

GPU_ENVS, CPU_ENVS = 16_384, 1024
STEPS, QUICK_STEPS = 512, 16  # an episode of production


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure gymnasium and torch, and the device's rollout beside them by turns."""
    steps = QUICK_STEPS if quick else STEPS
    tape, policy = gaussian_tape(ours.BARS), random_policy(ours.HIDDEN, ours.ATOMS)
    x = np.random.default_rng(0).normal(0, 1, (ours.BARS, N_BAR)).astype(np.float32)
    kernels = Rollout(device, tape, x, Shape(ours.HIDDEN, ours.ATOMS, tuple(BRANCHES)))
    chooser = TorchPolicy(policy)
    few = _starts(CPU_ENVS, steps)
    many = few if quick or device.kind == "cpu" else _starts(GPU_ENVS, steps)

    def launch(start: Array, **asked: bool) -> Any:
        return kernels.launch([policy], start[None], steps, ours.KEYS, stage_round=0, **asked)

    environment = MarketEnv(tape, x, CPU_ENVS, steps)
    played = play(environment, chooser, few)
    check(device, played, launch(few, trace=True).read())
    with fastest_threads(lambda: play(environment, chooser, few)):
        theirs, taken = alternating(
            lambda: play(environment, chooser, few), lambda: launch(many).event.wait()
        )
    peer, rate = CPU_ENVS * steps / theirs, len(many) * steps / taken
    return [
        Row(
            f"gymnasium {gymnasium.__version__} vector env + torch, {CPU_ENVS:,} envs",
            peer,
            "steps/s",
            f"NumPy market, torch on the CPU; {steps} steps",
        ),
        Row(
            "rollout, against gymnasium and torch",
            rate / peer,
            TIMES,
            f"{rate:,.0f} steps/s on {device.name}, {len(many):,} envs, the same network, by turns",
            goal="gymnasium",
        ),
    ]


class MarketEnv(gymnasium.vector.VectorEnv):
    """The NumPy market behind gymnasium's interface; all episodes have one length."""

    def __init__(self, tape: Tape, x: Array, n: int, steps: int) -> None:
        self.market, self.steps, self.num_envs = NumpyMarket(tape, x), steps, n
        bound = max(STATE_LIMIT, float(np.abs(x).max()))
        self.single_observation_space = Box(-bound, bound, (STATE_DIM,), np.float32)
        self.single_action_space = MultiDiscrete(list(BRANCHES.values()))
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Begin at the bars `options["start"]`, int[n]."""
        super().reset(seed=seed)
        return self.market.reset(options["start"], self.steps), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Advance all episodes by one bar."""
        return *self.market.step(actions), {}


def play(environment: MarketEnv, policy: TorchPolicy, start: Array) -> tuple[Array, Array]:
    """Walk greedy episodes; return actions uint8[steps, n, 4] and rewards float32[steps, n]."""
    state, _ = environment.reset(options={"start": start})
    actions, rewards = [], []
    done = np.zeros(len(start), bool)
    while not done.all():
        actions.append(policy.choose(state))
        state, reward, terminated, truncated, _ = environment.step(actions[-1])
        rewards.append(reward)
        done |= terminated | truncated
    return np.stack(actions), np.stack(rewards)


def check(device: Device, played: tuple[Array, Array], seen: Any) -> None:
    """Compare actions, and the rewards of episodes as long as these are the same."""
    actions, rewards = played
    same = (actions == seen.action).all(axis=-1)
    # an episode that once chose differently, near a tie, may go another way from there
    together = np.logical_and.accumulate(same, axis=0)
    if together.mean() < ours.AGREEMENT:
        raise AssertionError("other actions than gymnasium and torch; not timed")
    if device.correctly_rounded and not np.array_equal(
        rewards[together], seen.trace["reward"][together]
    ):
        raise AssertionError("other rewards than gymnasium's; not timed")


def _starts(n: int, steps: int) -> Array:
    return np.random.default_rng(n).integers(0, ours.BARS - steps - 1, n)
