"""Whole trajectories through the NumPy market: the oracle of the rollout kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backtest.market.layout import STATE, STEP, Array, End, Order
from backtest.market.step import advance, reset, step
from backtest.market.tape import Tape


@dataclass(frozen=True)
class Walk:
    """T steps of N episodes.

    Attributes:
        state: `EpisodeState` records [T+1, N]; row t is the state before step t.
        result: `StepResult` records [T, N]; rows after an end are zero with end = DEAD.
    """

    state: Array
    result: Array


def walk_actions(tape: Tape, start: Array, actions: Array) -> Walk:
    """Run given actions.

    Args:
        tape: bars and parameters.
        start: int[N], decision bar of each episode's step 0; start + T < tape.stop.
        actions: integers [T, N, 4]: direction, magnitude, order, urgency.
    """

    def move(t: int, state: Array, *rest: Array) -> tuple[Array, Array]:
        return step(tape.params, state, actions[t], *rest)

    return _walk(tape, start, len(actions), move)


def walk_targets(tape: Tape, start: Array, targets: Array) -> Walk:
    """Run given target positions with market orders, traded whole.

    Args:
        tape: bars and parameters.
        start: int[N], decision bar of each episode's step 0; start + T < tape.stop.
        targets: float32[T, N], units wanted after the fill of step t.
    """
    urgency = np.ones(len(start), np.float32)
    order = np.full(len(start), Order.MARKET)

    def move(t: int, state: Array, *rest: Array) -> tuple[Array, Array]:
        return advance(tape.params, state, targets[t], urgency, order, *rest)

    return _walk(tape, start, len(targets), move)


def check_span(tape: Tape, start: Array, steps: int) -> None:
    """Refuse episodes that would read a bar outside the tape.

    Raises:
        IndexError: names the episodes' bars and the tape's.
    """
    if len(start) and (start.min() < tape.start or start.max() + steps >= tape.stop):
        raise IndexError(
            f"episodes of {steps} steps from bars {start.min()}..{start.max()} leave the tape "
            f"[{tape.start}, {tape.stop})"
        )


def _walk(tape: Tape, start: Array, steps: int, move: Callable[..., tuple[Array, Array]]) -> Walk:
    start = np.asarray(start)
    n = len(start)
    check_span(tape, start, steps)
    state = np.zeros((steps + 1, n), STATE.dtype)
    result = np.zeros((steps, n), STEP.dtype)
    state[0] = reset(tape.params, n)
    alive = np.ones(n, bool)
    for t in range(steps):
        bar = start + t
        last = np.full(n, t == steps - 1)
        aux = tape.aux[bar - tape.start]
        new, out = move(
            t, state[t], tape.at(bar), tape.at(bar + 1), np.full(n, t, np.int32), last, aux
        )
        state[t + 1] = np.where(alive, new, state[t])
        result[t] = np.where(alive, out, np.zeros((), STEP.dtype))
        result["end"][t, ~alive] = End.DEAD
        alive = alive & (result["end"][t] == End.RUNNING)
    return Walk(state, result)
