"""Bar tables of the mlp: what a network computes of a bar alone, once for all episodes.

What every kind's tables have in common is `Tables`; those of the scenario network are in
`opencl.rollout.scenario_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from backtest.agent.weights import N_BAR, PolicyWeights
from backtest.market.layout import Array
from opencl.buffers import DeviceArray, empty, upload
from opencl.rollout.program import BARS_PER_ITEM, RolloutProgram

FLOAT = 4  # bytes
Layer = tuple[DeviceArray, DeviceArray]  # weight [n_in, n_out], bias [n_out]


class Tables(Protocol):
    """The tables of one launch, for a stretch of bars at a time.

    Attributes:
        table_of: each policy's table.
        bar_bytes: bytes that one bar needs, in all tables and their scratch.
        largest: bytes that one bar needs in the largest buffer.
    """

    table_of: Sequence[int]
    bar_bytes: int
    largest: int

    def allocate(self, bars: int, whole: int) -> None:
        """Make room for this many bars; `whole` is the tape's number of bars if all would fit."""
        ...

    def fill(self, queue: Any, first: int, bars: int) -> list[Any]:
        """Enqueue the work of bars [first, first + bars), counted from the tape's start.

        Returns:
            The events.
        """
        ...

    @property
    def buffers(self) -> tuple[Any, Any]:
        """Tables [tables][bars][bar_row], and what step banks retrieved [tables][bars] or None."""
        ...


class MlpTables:
    """The first layer's bar part of each distinct policy."""

    def __init__(
        self,
        made: RolloutProgram,
        x: DeviceArray,
        policies: Sequence[PolicyWeights],
        table_of: Sequence[int],
    ) -> None:
        """Upload the weights of distinct policies; `table_of` is each launched policy's place."""
        self.made, self.x, self.table_of = made, x, table_of
        self.weights = [(up(made, p.W1_bar.T), up(made, p.b1)) for p in policies]
        self.bar_bytes = self.largest = len(policies) * made.bar_row * FLOAT

    def allocate(self, bars: int, whole: int) -> None:
        """Make room for this many bars."""
        self.table = empty(
            self.made.device, (len(self.weights), bars, self.made.bar_row), np.float32
        )

    def fill(self, queue: Any, first: int, bars: int) -> list[Any]:
        """Enqueue one dense layer a policy."""
        return [
            dense(
                self.made,
                queue,
                self.x,
                layer,
                self.table,
                bars,
                first=first,
                stride=N_BAR,
                first_out=i * bars,
            )  # fmt: skip
            for i, layer in enumerate(self.weights)
        ]

    @property
    def buffers(self) -> tuple[Any, Any]:
        """The tables; no bank."""
        return self.table.buffer, None


def dense(
    made: RolloutProgram,
    queue: Any,
    x: DeviceArray,
    layer: Layer,
    out: DeviceArray,
    rows: int,
    *,
    first: int = 0,
    stride: int | None = None,
    parts: int = 1,
    first_out: int = 0,
    out_stride: int | None = None,
    at: int = 0,
    least: float = -np.inf,
) -> Any:
    """Enqueue `bar_dense` and return its event.

    Args:
        made: holds the kernel.
        queue: to enqueue on.
        x: float32[..., stride].
        layer: weight [n_in, n_out] and bias [n_out].
        out: float32[..., out_stride].
        rows: rows of x.
        first: first row of x.
        stride: floats between rows of x; None: n_in.
        parts: rows that stand side by side in a row of out.
        first_out: first row of out.
        out_stride: floats between rows of out; None: parts*n_out.
        at: first column of out.
        least: lower bound of the result; 0 rectifies.
    """
    weight, bias = layer
    n_in, n_out = weight.shape
    sizes = (first, stride or n_in, n_in, n_out, rows, parts, first_out)
    return made.program.kernel("bar_dense")(
        queue,
        (n_out, -(-rows // BARS_PER_ITEM)),
        None,
        *(array.buffer for array in (x, weight, bias, out)),
        *(np.int32(i) for i in (*sizes, out_stride or parts * n_out, at)),
        np.float32(least),
    )


def up(made: RolloutProgram, array: Array) -> DeviceArray:
    """Copy weights to the device as float32."""
    return upload(made.device, np.ascontiguousarray(array, np.float32))
