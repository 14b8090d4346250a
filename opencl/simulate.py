"""The market kernels on a device: given targets, given actions, or random actions.

`Simulator.backtest` is the vector backtester: target positions in, totals and equity out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from backtest.market.layout import STATE, STEP, TOTALS, Array
from backtest.market.tape import Tape
from backtest.market.walk import Walk, check_span
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.market import MARKET_FILES, MarketRules
from opencl.programs import Program

SIMULATE_FILES = (*MARKET_FILES, "totals.cl", "simulate.cl")
GROUP = 64  # work-items a group; episodes are padded to whole groups
TARGET_TYPES = (np.float32, np.float16, np.int8)  # narrower ones cost less transfer
Targets = Array | DeviceArray


@cache
def simulator(device: Device) -> Simulator:
    """Return the market kernels of a device, one object for all calls."""
    return Simulator(device)


class DeviceTape:
    """A tape's rows on a device: the first kernel arguments of everything that walks it."""

    def __init__(self, device: Device, tape: Tape) -> None:
        """Copy bars and aux; nothing outside [start, stop) leaves the host."""
        self.tape = tape
        self.bars = upload(device, tape.bars)
        self.aux = upload(device, tape.aux)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.bars.nbytes + self.aux.nbytes

    @property
    def arguments(self) -> tuple[object, object, object]:
        """Parameters by value, bars and aux as buffers."""
        return self.tape.params, self.bars.buffer, self.aux.buffer


@dataclass(frozen=True)
class Backtest:
    """What strategies did; everything stays on the device until it is read.

    Attributes:
        strategies: n; the arrays hold whole work-groups and so perhaps more.
        event: of the kernel.
        totals_held: `StrategyTotals` records.
        equity_held: float32[steps, .], if it was asked for.
    """

    strategies: int
    event: Any
    totals_held: DeviceArray
    equity_held: DeviceArray | None

    @cached_property
    def totals(self) -> Array:
        """`StrategyTotals` records [n]; `backtest.market.totals` says more about them."""
        return self.totals_held.read()[: self.strategies]

    @cached_property
    def equity(self) -> Array:
        """Equity at every close[b+1], float32[steps, n], currency; a ruined strategy's last.

        Raises:
            ValueError: the backtest was not asked to keep it.
        """
        if self.equity_held is None:
            raise ValueError("the equity was not kept; backtest(..., equity=True)")
        return self.equity_held.read()[:, : self.strategies]


class Simulator:
    """Runs `simulate.cl`; results equal `backtest.market.walk` bit for bit."""

    def __init__(self, device: Device) -> None:
        """Programs are compiled on first use, one for each kind of market."""
        self.device = device
        self._programs: dict[tuple[MarketRules, int], Program] = {}

    def backtest(
        self,
        tape: Tape | DeviceTape,
        start: Array,
        targets: Targets,
        *,
        equity: bool = False,
        timed: bool = False,
    ) -> Backtest:
        """Trade target positions with market orders, with all costs, and add up the outcome.

        What lies on the device already, tape or targets, is used there; of the results nothing
        comes back before it is read. The equity of s steps and n strategies takes 4*s*n bytes,
        the totals 44*n.

        Args:
            tape: bars and parameters.
            start: int[n], decision bar of each strategy's step 0.
            targets: [steps, n], units wanted after the fill of each step; float32, float16 or
                int8 (whole units). On the device n must be a multiple of `GROUP`.
            equity: keep the equity of every step as well.
            timed: use the queue whose events carry times; wait before the other queue is used.

        Raises:
            IndexError: a strategy leaves the tape.
            TypeError: targets of another dtype.
            ValueError: starts and targets of different n, or on the device n is no multiple.
            DeviceError: the device has no room.
        """
        n = targets.shape[1]
        held = empty(self.device, (targets.shape[0], padded(n)), np.float32) if equity else None
        return self._backtest(tape, start, targets, held, None, timed)

    def targets(self, tape: Tape, start: Array, targets: Array) -> tuple[Array, Array]:
        """Run target positions with market orders and return every result.

        Args:
            tape: bars and parameters.
            start: int[n], decision bar of each strategy's step 0.
            targets: float32[steps, n], units.

        Returns:
            Equity float32[steps, n] at close[b+1] (a ruined strategy keeps its last), and
            `StepResult` records [steps, n].
        """
        steps, n = targets.shape
        equity = empty(self.device, (steps, padded(n)), np.float32)
        trace = empty(self.device, (steps, padded(n)), STEP.dtype)
        made = self._backtest(tape, start, targets.astype(np.float32), equity, trace, False)
        return made.equity, trace.read()[:, :n]

    def _backtest(
        self,
        tape: Tape | DeviceTape,
        start: Array,
        targets: Targets,
        equity: DeviceArray | None,
        trace: DeviceArray | None,
        timed: bool,
    ) -> Backtest:
        steps, n = targets.shape
        if targets.dtype not in TARGET_TYPES:
            raise TypeError(f"targets of {targets.dtype}; float32, float16 or int8")
        if len(start) != n or (isinstance(targets, DeviceArray) and n % GROUP):
            raise ValueError(
                f"targets of {n} strategies, starts of {len(start)}; on the device whole groups of "
                f"{GROUP}"
            )
        rows = self._rows(tape)
        check_span(rows.tape, start, steps)
        totals = empty(self.device, padded(n), TOTALS.dtype)
        event = self._launch(
            "portfolio_trace_kernel" if trace else "portfolio_sim_kernel",
            rows,
            n,
            self._up(start.astype(np.int32), 0),
            targets.buffer if isinstance(targets, DeviceArray) else self._up(targets, 1),
            totals.buffer,
            equity and equity.buffer,
            *([trace.buffer] if trace else []),
            np.int32(rows.tape.start),
            np.int32(padded(n)),
            np.int32(steps),
            target_bits=8 * targets.dtype.itemsize,
            timed=timed,
        )
        return Backtest(n, event, totals, equity)

    def actions(self, tape: Tape, start: Array, actions: Array) -> Walk:
        """Run given actions, uint8[steps, n, 4], and return every state and result."""
        steps, n = actions.shape[:2]
        check_span(tape, start, steps)
        trace = empty(self.device, (steps, padded(n)), STEP.dtype)
        states = empty(self.device, (steps + 1, padded(n)), STATE.dtype)
        self._launch(
            "action_sim_kernel",
            self._rows(tape),
            n,
            self._up(start.astype(np.int32), 0),
            self._up(actions.astype(np.uint8), 1),
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
            rows,
            n,
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

    def _rows(self, tape: Tape | DeviceTape) -> DeviceTape:
        return tape if isinstance(tape, DeviceTape) else DeviceTape(self.device, tape)

    def _up(self, array: Array, axis: int) -> object:
        return upload(self.device, _pad(np.ascontiguousarray(array), axis)).buffer

    def _program(self, rules: MarketRules, target_bits: int) -> Program:
        wanted = rules, target_bits
        if wanted not in self._programs:
            sizes = rules.defines() | {"TARGET_BITS": target_bits}
            self._programs[wanted] = Program(self.device, SIMULATE_FILES, sizes)
        return self._programs[wanted]

    def _launch(
        self,
        name: str,
        rows: DeviceTape,
        n: int,
        *arguments: object,
        target_bits: int = 32,
        timed: bool = False,
    ) -> Any:
        program = self._program(MarketRules.of(rows.tape.params), target_bits)
        queue = self.device.timed_queue if timed else self.device.queue
        size = (padded(n),), (GROUP,)
        return program.kernel(name)(queue, *size, *rows.arguments, *arguments)


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
