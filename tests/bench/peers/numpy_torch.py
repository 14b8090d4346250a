"""What one would write without kernels: NumPy market and torch policy, step after step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from backtest.agent.actions import SPANS
from backtest.agent.weights import PolicyWeights, assemble
from backtest.market.layout import (
    BAR_SLOTS,
    N_ACTIONS,
    PORTFOLIO_SLOTS,
    STATE_DIM,
    Array,
    End,
)
from backtest.market.portfolio import portfolio_state
from backtest.market.step import reset, step
from backtest.market.tape import Tape
from tests.bench.rows import wall_seconds


class TorchPolicy:
    """A branching dueling C51 network on the CPU, greedy."""

    def __init__(self, policy: PolicyWeights) -> None:
        import torch

        first = np.empty((len(policy.b1), STATE_DIM), np.float32)
        first[:, list(BAR_SLOTS)] = policy.W1_bar
        first[:, list(PORTFOLIO_SLOTS)] = policy.W1_portfolio
        arrays = first, policy.b1, policy.W2, policy.b2, policy.W_head, policy.b_head, policy.z
        self.weights = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]

    def choose(self, state: Array) -> Array:
        """Return the greedy action of each state, uint8[n, 4]."""
        import torch
        from torch.nn.functional import linear

        w1, b1, w2, b2, w_head, b_head, z = self.weights
        with torch.inference_mode():
            h = linear(torch.from_numpy(state), w1, b1).relu()
            h = linear(h, w2, b2).relu()
            logits = linear(h, w_head, b_head).reshape(-1, N_ACTIONS, len(z))
            q = torch.softmax(logits, dim=2) @ z
            best = [q[:, start:stop].argmax(1) for start, stop in SPANS]
            return torch.stack(best, 1).numpy().astype(np.uint8)


@contextmanager
def fastest_threads(work: Callable[[], object]) -> Iterator[None]:
    """Let torch use one thread or all inside, whichever makes `work` faster: a peer at its best."""
    import torch

    usual = torch.get_num_threads()
    seconds = {}
    for count in {1, os.cpu_count() or 1}:  # not `usual`: what ran before may have lowered it
        torch.set_num_threads(count)
        seconds[count] = wall_seconds(work, 1)
    torch.set_num_threads(min(seconds, key=lambda count: seconds[count]))
    try:
        yield
    finally:
        torch.set_num_threads(usual)


class NumpyMarket:
    """Episodes of one length beside each other, advanced by one bar a call."""

    def __init__(self, tape: Tape, x: Array) -> None:
        self.tape, self.x = tape, x

    def reset(self, start: Array, steps: int) -> Array:
        """Begin at bars `start`, int[n]; return the states float32[n, 128]."""
        n = len(start)
        self.bar, self.t, self.steps = start, 0, steps
        self.account, self.alive = reset(self.tape.params, n), np.ones(n, bool)
        return self._states()

    def step(self, action: Array) -> tuple[Array, Array, Array, Array]:
        """Take uint8[n, 4]; return states, rewards, and who terminated and who was truncated."""
        p, aux = self.tape.params, self.tape.aux[self.bar - self.tape.start]
        n = len(action)
        clock, last = np.full(n, self.t, np.int32), np.full(n, self.t == self.steps - 1)
        now, then = self.tape.at(self.bar), self.tape.at(self.bar + 1)
        new, result = step(p, self.account, action, now, then, clock, last, aux)
        self.account = np.where(self.alive, new, self.account)
        reward = np.where(self.alive, result["reward"], np.float32(0))
        end = np.where(self.alive, result["end"], End.DEAD)
        self.alive = self.alive & (end == End.RUNNING)
        self.bar, self.t = self.bar + 1, self.t + 1
        return self._states(), reward, end == End.TERMINATED, end == End.TRUNCATED

    def _states(self) -> Array:
        clock = np.full(len(self.bar), self.t, np.int32)
        account = portfolio_state(self.tape.params, self.account, self.tape.at(self.bar), clock)
        return assemble(self.x[self.bar - self.tape.start], account)


class TorchLoop:
    """Both together."""

    def __init__(self, tape: Tape, x: Array, policy: PolicyWeights) -> None:
        self.market, self.policy = NumpyMarket(tape, x), TorchPolicy(policy)

    def play(self, start: Array, steps: int) -> Array:
        """Walk greedy episodes; return the actions, uint8[steps, n, 4]."""
        state, chosen = self.market.reset(start, steps), []
        for _ in range(steps):
            chosen.append(self.policy.choose(state))
            state = self.market.step(chosen[-1])[0]
        return np.stack(chosen)
