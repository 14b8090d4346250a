"""What a rollout leaves, on the device and on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest.market.layout import Array
from opencl.buffers import DeviceArray
from opencl.memory import Planned


@dataclass(frozen=True)
class Trajectories:
    """What a rollout leaves; n episodes, policy after policy.

    Attributes:
        start: int32[n], decision bar of step 0.
        action: uint8[steps, n, 4].
        reward: float32[steps, n].
        equity: float32[steps, n], currency, at close[b+1].
        end: uint8[steps, n], `End`.
        portfolio: float32[steps + 1, n, 13], or None when not asked for.
        trace: `StepResult` records [steps, n], or None when not asked for.
        values: float32[steps, n, heads], the learned branches' action values, or None.
        slots: int8[steps, n, 2], what the task and the step bank retrieved for a decision: a slot,
            `MISS` or `ABSTAIN`; MISS without a bank and in rows after an end. Or None.
    """

    start: Array
    action: Array
    reward: Array
    equity: Array
    end: Array
    portfolio: Array | None
    trace: Array | None
    values: Array | None
    slots: Array | None = None


@dataclass(frozen=True)
class Launch:
    """A rollout that was enqueued; its outputs lie on the device until they are read.

    Attributes:
        events: of the kernels that walk, in order; with times when it was launched as timed.
        bar_events: of the kernels that fill bar tables.
        planned: bytes on the device; tables with their scratch.
        start: int[n], decision bar of step 0.
    """

    events: Sequence[Any]
    bar_events: Sequence[Any]
    planned: Planned
    start: Array
    action: DeviceArray
    reward: DeviceArray
    equity: DeviceArray
    end: DeviceArray
    portfolio: DeviceArray | None
    trace: DeviceArray | None
    values: DeviceArray | None
    slots: DeviceArray | None

    @property
    def event(self) -> Any:
        """Of the last kernel: when it is done, all are."""
        return self.events[-1]

    def read(self) -> Trajectories:
        """Wait for the kernels and copy everything to the host."""
        self.event.wait()
        return Trajectories(
            start=self.start.astype(np.int32),
            action=self.action.read(),
            reward=self.reward.read(),
            equity=self.equity.read(),
            end=self.end.read(),
            portfolio=None if self.portfolio is None else self.portfolio.read().swapaxes(1, 2),
            trace=None if self.trace is None else self.trace.read(),
            values=None if self.values is None else self.values.read(),
            slots=None if self.slots is None else self.slots.read(),
        )
