"""What every way of handing arrays over promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy.typing as npt

from backtest.agent.columns import Column
from opencl.buffers import DeviceArray
from opencl.devices import Device


@dataclass(frozen=True)
class Lent(DeviceArray):
    """An array in a block of a pool, which has it back when the last view of it is gone.

    A block whose array is dropped without having been finished is freed instead.
    """

    block: Any = field(repr=False)


class Exchange(ABC):
    """How arrays written by kernels of one device reach a learner, in this order, once for each.

    1. `empty` allocates them, `begin` makes them the kernels' and what torch still does with
       the memory comes first.
    2. The caller enqueues kernels on the queue it gave to `begin`.
    3. `finish` waits for that queue and returns them as the learner's. A result stays valid, and
       its memory is not given to anyone else, as long as it or a view of it lives.

    Attributes:
        way: as `skillwalk devices` shows it.
        shared: a result is the memory the kernels wrote, not a copy.
        device: whose kernels write.
        learner: the torch device of the learner: "cpu", "cuda:0".
        reason: why no faster way was taken, or None.
    """

    way: ClassVar[str]
    shared: ClassVar[bool]

    def __init__(self, device: Device, learner: str = "cpu") -> None:
        """Allocate nothing yet.

        Raises:
            DeviceError: this way is not for this device and learner.
        """
        self.device, self.learner = device, learner
        self.reason: str | None = None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array that kernels may write between `begin` and `finish`.

        Raises:
            DeviceError: no room.
        """

    def begin(self, queue: Any, arrays: Iterable[DeviceArray]) -> None:  # noqa: B027
        """Make arrays of `empty` the kernels' on a queue of the device; copies need nothing."""

    @abstractmethod
    def finish(self, queue: Any, arrays: Mapping[str, DeviceArray]) -> dict[str, Column]:
        """Wait for the queue and return the learner's arrays by the same names.

        Records (structured dtypes) are always NumPy's; torch has none.
        """
