"""Bar tables of the mlp: what a network computes of a bar alone, once for all episodes.

What every kind's tables have in common is `Tables`; those of the scenario network are in
`opencl.rollout.scenario_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from backtest.agent.weights import N_BAR, PolicyWeights
from backtest.market.layout import Array
from opencl.buffers import DeviceArray, empty, upload
from opencl.devices import Device
from opencl.rollout.packing import padded
from opencl.rollout.program import RolloutProgram
from opencl.rollout.sizes import BARS_PER_ITEM, COLUMNS

FLOAT = 4  # bytes


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

    def fill(self, queue: Any, first: Sequence[int], bars: int) -> list[Any]:
        """Enqueue the work of bars [first[i], first[i] + bars) of table i, as far as the tape goes.

        Bars are counted from the tape's start.

        Returns:
            The events.
        """
        ...

    @property
    def buffers(self) -> tuple[Any, Any]:
        """Tables [tables][bars][bar_row], and what step banks retrieved [tables][bars] or None."""
        ...


@dataclass(frozen=True)
class Layer:
    """A dense layer on the device.

    Attributes:
        weight: float32[n_in, n_out], n_out padded to a multiple of `COLUMNS`.
        bias: float32[n_out], padded.
        shape: n_in and n_out without the padding.
    """

    weight: DeviceArray
    bias: DeviceArray
    shape: tuple[int, int]

    @classmethod
    def up(cls, device: Device, weight: Array, bias: Array) -> Layer:
        """Copy weight [n_out, n_in] and bias [n_out] to the device."""
        n_out, n_in = weight.shape
        width = COLUMNS * -(-n_out // COLUMNS)
        wide = padded(weight.T, n_in, width)
        return cls(upload(device, wide), upload(device, padded(bias, width)), (n_in, n_out))


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
        width = made.sizes.bar_row
        self.layers = [
            Layer.up(made.device, padded(p.W1_bar, width, N_BAR), padded(p.b1, width))
            for p in policies
        ]
        self.bar_bytes = self.largest = len(policies) * width * FLOAT

    def allocate(self, bars: int, whole: int) -> None:
        """Make room for this many bars."""
        shape = (len(self.layers), bars, self.made.sizes.bar_row)
        self.table = empty(self.made.device, shape, np.float32)

    def fill(self, queue: Any, first: Sequence[int], bars: int) -> list[Any]:
        """Enqueue one dense layer a policy."""
        made, x = self.made, self.x
        events = []
        for i, (layer, at) in enumerate(zip(self.layers, first, strict=True)):
            rows = min(bars, x.shape[0] - at)
            where = {"first": at, "stride": N_BAR, "first_out": i * bars}
            if rows > 0:
                events.append(dense(made, queue, x, layer, self.table, rows, **where))
        return events

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
        layer: what is computed.
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
    n_in, n_out = layer.shape
    sizes = (first, stride or n_in, n_in, n_out, rows, parts, first_out)
    return made.program.kernel("bar_dense")(
        queue,
        *made.across(-(-n_out // COLUMNS), -(-rows // BARS_PER_ITEM)),
        *(array.buffer for array in (x, layer.weight, layer.bias, out)),
        *(np.int32(i) for i in (*sizes, out_stride or parts * n_out, at)),
        np.float32(least),
    )
