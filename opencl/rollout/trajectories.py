"""What a rollout leaves, on the device and on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from backtest.market.layout import Array
from opencl.buffers import DeviceArray
from opencl.exchange import Exchange
from opencl.memory import Planned

V = TypeVar("V")


@dataclass(frozen=True)
class Walked(Generic[V]):
    """What a rollout leaves; n episodes, policy after policy.

    V is a NumPy array, or a tensor where the learner is on a GPU. Its memory is the rollout's
    again when the last view of it is gone (`opencl.exchange`).

    Attributes:
        start: int32[n], decision bar of step 0; NumPy's, as `trace` is.
        action: uint8[steps, n, 4].
        reward: float32[steps, n].
        equity: float32[steps, n], currency, at close[b+1].
        end: uint8[steps, n], `End`.
        portfolio: float32[steps + 1, n, 13], a view of [steps + 1, 13, n], or None when not asked
            for.
        trace: `StepResult` records [steps, n], or None when not asked for.
        values: float32[steps, n, heads], the learned branches' action values, or None.
        slots: int8[steps, n, 2], what the task and the step bank retrieved for a decision: a slot,
            `MISS` or `ABSTAIN`; MISS without a bank and in rows after an end. Or None.
    """

    start: Array
    action: V
    reward: V
    equity: V
    end: V
    portfolio: V | None
    trace: Array | None
    values: V | None
    slots: V | None = None


Trajectories = Walked[Array]


@dataclass(frozen=True)
class Launch:
    """A rollout that was enqueued; its outputs are the kernels' until they are read.

    Attributes:
        exchange: what hands them over.
        queue: the kernels'.
        events: of the kernels that walk, in order; with times when it was launched as timed.
        bar_events: of the kernels that fill bar tables.
        planned: bytes on the device; tables with their scratch.
        start: int[n], decision bar of step 0.
        outputs: by the names of `Walked`; what was not asked for is missing. Portfolio states are
            [steps + 1, 13, n] there.
    """

    exchange: Exchange
    queue: Any
    events: Sequence[Any]
    bar_events: Sequence[Any]
    planned: Planned
    start: Array
    outputs: Mapping[str, DeviceArray]

    @property
    def event(self) -> Any:
        """Of the last kernel: when it is done, all are."""
        return self.events[-1]

    def read(self) -> Walked[Any]:
        """Wait for the kernels and return everything to the learner that it was launched for."""
        return self._walked

    @cached_property
    def _walked(self) -> Walked[Any]:
        found: dict[str, Any] = self.exchange.finish(self.queue, self.outputs)
        portfolio = found.get("portfolio")
        return Walked(
            start=self.start.astype(np.int32),
            action=found["action"],
            reward=found["reward"],
            equity=found["equity"],
            end=found["end"],
            portfolio=None if portfolio is None else portfolio.swapaxes(1, 2),
            trace=found.get("trace"),
            values=found.get("values"),
            slots=found.get("slots"),
        )
