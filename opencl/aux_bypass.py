"""The forecast's way around the network on a device; see `backtest.agent.aux_bypass`."""

from __future__ import annotations

import numpy as np

from backtest.agent.aux_bypass import BLOCK_ROWS, LANES
from backtest.market.layout import Array
from opencl.buffers import empty, upload
from opencl.devices import Device
from opencl.programs import Program

FILES = ("aux_bypass.cl",)
SIZES = {"BYPASS_LANES": LANES, "BYPASS_ROWS": BLOCK_ROWS}


class AuxBypass:
    """Forward and backward of the bypass, compiled for one device."""

    def __init__(self, device: Device) -> None:
        """Compile.

        Raises:
            KernelError: the compiler refuses.
            DeviceError: the device cannot be opened.
        """
        self.device = device
        self.program = Program(device, FILES, SIZES)

    def bias(self, q: Array, w: Array, s: Array) -> Array:
        """Return the direction values with the forecast's share, float32[B, 4].

        Args:
            q: float32[B, 4].
            w: float32[4], centred.
            s: float32[B].
        """
        held = upload(self.device, q, writable=True)
        if len(q):
            self.program.kernel("aux_to_q_dir_bias")(
                self.device.queue, (len(q),), None, self._buffer(w), self._buffer(s), held.buffer
            )
        return held.read()

    def backward(
        self, dq: Array, w: Array, s: Array, scale: float, ds: Array | None = None
    ) -> tuple[Array, Array | None]:
        """Return dW float32[4], and ds float32[B] with its share or None.

        Args:
            dq: float32[B, 4], gradient of each row's own loss.
            w: float32[4], centred.
            s: float32[B].
            scale: of the loss: 1/B for a mean over rows.
            ds: float32[B] to be added to; None: s is detached.
        """
        rows, groups = len(dq), -(-len(dq) // BLOCK_ROWS)
        held = None if ds is None else upload(self.device, ds, writable=True)
        partial = empty(self.device, (groups, 4), np.float32)
        dw = empty(self.device, 4, np.float32)
        if rows:
            self.program.kernel("aux_to_q_dir_backward")(
                self.device.queue,
                (groups * LANES,),
                (LANES,),
                *(self._buffer(array) for array in (w, s, dq)),
                np.float32(scale),
                np.int32(rows),
                None if held is None else held.buffer,
                partial.buffer,
            )
        self.program.kernel("aux_to_q_dir_total")(
            self.device.queue,
            (LANES,),
            (LANES,),
            partial.buffer,
            np.float32(scale),
            np.int32(groups),
            dw.buffer,
        )
        return dw.read(), None if held is None else held.read()

    def _buffer(self, array: Array) -> object:
        return upload(self.device, np.ascontiguousarray(array, np.float32)).buffer
