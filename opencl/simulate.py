"""The market kernels on a device: given targets, given actions, or random actions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from backtest.market.layout import STATE, STEP, Array
from backtest.market.tape import Tape
from backtest.market.walk import Walk, check_span
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.programs import Program

MARKET_FILES = ("philox.cl", "fill.cl", "reward.cl", "market.cl")
GROUP = 64  # work-items a group; episodes are padded to whole groups


@cache
def simulator(device: Device) -> Simulator:
    """Return the compiled market kernels of a device, one object for all calls."""
    return Simulator(device)


class DeviceTape:
    """A tape's rows on a device: the first kernel arguments of everything that walks it."""

    def __init__(self, device: Device, tape: Tape) -> None:
        """Copy bars and aux; nothing outside [start, stop) leaves the host."""
        self.tape = tape
        self.bars = upload(device, tape.bars)
        self.aux = upload(device, tape.aux)

    @property
    def arguments(self) -> tuple[object, object, object]:
        """Parameters by value, bars and aux as buffers."""
        return self.tape.params, self.bars.buffer, self.aux.buffer


class Simulator:
    """Runs `simulate.cl`; results equal `backtest.market.walk` bit for bit."""

    def __init__(self, device: Device) -> None:
        """Compile for one device."""
        self.device = device
        self.program = Program(device, (*MARKET_FILES, "simulate.cl"))

    def targets(self, tape: Tape, start: Array, targets: Array) -> tuple[Array, Array]:
        """Run target positions with market orders (portfolio_sim_kernel).

        Args:
            tape: bars and parameters.
            start: int[n], decision bar of each strategy's step 0.
            targets: float32[steps, n], units.

        Returns:
            Equity float32[steps, n] at close[b+1] (a ruined strategy keeps its last), and
            `StepResult` records [steps, n].
        """
        steps, n = targets.shape
        trace = empty(self.device, (steps, padded(n)), STEP.dtype)
        equity = self._targets(tape, start, targets, trace.buffer)
        return equity, trace.read()[:, :n]

    def equity(self, tape: Tape, start: Array, targets: Array) -> Array:
        """As `targets`, equity alone: a twentieth of the bytes."""
        return self._targets(tape, start, targets, None)

    def _targets(self, tape: Tape, start: Array, targets: Array, trace: object) -> Array:
        steps, n = targets.shape
        check_span(tape, start, steps)
        rows = DeviceTape(self.device, tape)
        equity = empty(self.device, (steps, padded(n)), np.float32)
        self._launch(
            "portfolio_sim_kernel",
            n,
            *rows.arguments,
            self._up(start, np.int32, 0),
            self._up(targets, np.float32, 1),
            equity.buffer,
            trace,
            np.int32(tape.start),
            np.int32(padded(n)),
            np.int32(steps),
        )
        return equity.read()[:, :n]

    def actions(self, tape: Tape, start: Array, actions: Array) -> Walk:
        """Run given actions, uint8[steps, n, 4], and return every state and result."""
        steps, n = actions.shape[:2]
        check_span(tape, start, steps)
        rows = DeviceTape(self.device, tape)
        trace = empty(self.device, (steps, padded(n)), STEP.dtype)
        states = empty(self.device, (steps + 1, padded(n)), STATE.dtype)
        self._launch(
            "action_sim_kernel",
            n,
            *rows.arguments,
            self._up(start, np.int32, 0),
            self._up(actions, np.uint8, 1),
            trace.buffer,
            states.buffer,
            np.int32(tape.start),
            np.int32(padded(n)),
            np.int32(steps),
        )
        return Walk(states.read()[:, :n], trace.read()[:, :n])

    def random(
        self, tape: Tape, start: Array, steps: int, key: Array, stage_round: int
    ) -> tuple[Array, Array]:
        """Run uniform random actions: rewards float32[steps, n] and final states [n]."""
        n = len(start)
        check_span(tape, start, steps)
        rewards = empty(self.device, (steps, padded(n)), np.float32)
        final = empty(self.device, padded(n), STATE.dtype)
        rows = DeviceTape(self.device, tape)
        first = upload(self.device, _pad(start.astype(np.int32), 0))
        self.random_into(rows, first, rewards, final, key, stage_round)
        return rewards.read()[:, :n], final.read()[:n]

    def random_into(
        self,
        rows: DeviceTape,
        start: DeviceArray,
        rewards: DeviceArray,
        final: DeviceArray,
        key: Array,
        stage_round: int,
        timed: bool = False,
    ) -> Any:
        """Enqueue `random_sim_kernel` on arrays that lie on the device; return its event.

        Args:
            rows: the tape.
            start: int32[n]; n is a multiple of `GROUP`.
            rewards: float32[steps, n], written.
            final: `EpisodeState` records [n], written.
            key: uint32[2].
            stage_round: counter word 0 (`backtest.rng.stream`).
            timed: use the queue whose events carry times; wait before the other queue is used.

        Raises:
            ValueError: n is not a multiple of `GROUP`.
        """
        steps, n = rewards.shape
        if n % GROUP:
            raise ValueError(f"{n} episodes; random_sim_kernel takes a multiple of {GROUP}")
        return self._launch(
            "random_sim_kernel",
            n,
            *rows.arguments,
            start.buffer,
            rewards.buffer,
            final.buffer,
            key.astype(np.uint32),
            np.uint32(stage_round),
            np.int32(rows.tape.start),
            np.int32(n),
            np.int32(steps),
            timed=timed,
        )

    def _up(self, array: Array, dtype: type[np.generic], axis: int) -> object:
        return upload(self.device, _pad(np.ascontiguousarray(array, dtype), axis)).buffer

    def _launch(self, name: str, n: int, *arguments: object, timed: bool = False) -> Any:
        queue = self.device.timed_queue if timed else self.device.queue
        return self.program.kernel(name)(queue, (padded(n),), (GROUP,), *arguments)


def padded(n: int) -> int:
    """Return the episodes a launch walks for n: whole work-groups."""
    return -(-n // GROUP) * GROUP


def _pad(array: Array, axis: int) -> Array:
    """Repeat the last episode up to whole work-groups; kernels check no bound."""
    missing = padded(array.shape[axis]) - array.shape[axis]
    if not missing:
        return array
    last = np.take(array, [-1], axis)
    return np.concatenate([array, np.repeat(last, missing, axis)], axis)
