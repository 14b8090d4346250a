"""The way that always works: a copy to pageable host memory, and from there to the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy.typing as npt

from backtest.agent.columns import Column
from opencl import buffers
from opencl.buffers import DeviceArray
from opencl.exchange.interface import Exchange


class Copies(Exchange):
    """Pageable copies."""

    way: ClassVar[str] = "copies"
    shared: ClassVar[bool] = False

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array of the device; see `Exchange.empty`."""
        return buffers.empty(self.device, shape, dtype)

    def finish(self, queue: Any, arrays: Mapping[str, DeviceArray]) -> dict[str, Column]:
        """Copy; see `Exchange.finish`."""
        queue.finish()
        return {name: self._copy(array) for name, array in arrays.items()}

    def _copy(self, array: DeviceArray) -> Column:
        held = array.read()
        if self.learner == "cpu" or array.dtype.fields:
            return held
        import torch

        return torch.from_numpy(held).to(self.learner)
