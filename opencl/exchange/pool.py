"""Blocks of memory that are costly to make, kept for the next round."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from backtest.errors import DeviceError

KEPT_SHARE = 16  # of a memory, one part may lie idle in a pool
SLACK = 2  # a block up to this many times larger than asked for is taken


class Sized(Protocol):
    """What a pool holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""


B = TypeVar("B", bound=Sized)


class Pool(Generic[B]):
    """Idle blocks, the longest idle first; any thread may take, any thread or finaliser give.

    Attributes:
        made: blocks made so far.
    """

    def __init__(self, make: Callable[[int], B], unit: int, kept: int) -> None:
        """Begin without blocks.

        Args:
            make: allocates a block of so many bytes, a multiple of `unit`.
            unit: bytes that sizes are rounded up to.
            kept: idle bytes beyond which blocks are dropped, the longest idle first.
        """
        self._make, self._unit, self._kept = make, unit, kept
        self._idle: list[B] = []
        # A finaliser may run inside `take`, so giving takes no lock; append is atomic.
        self._returned: deque[B] = deque()
        self._lock = threading.Lock()
        self.made = 0

    def take(self, nbytes: int) -> B:
        """Return the smallest idle block with room for `nbytes`, or a new one.

        Raises:
            DeviceError: no room, not even without the idle blocks.
        """
        size = -(-max(nbytes, 1) // self._unit) * self._unit
        with self._lock:
            self._sort_in()
            fitting = [block for block in self._idle if size <= block.nbytes <= SLACK * size]
            if fitting:
                best = min(fitting, key=lambda block: block.nbytes)
                self._idle = [block for block in self._idle if block is not best]
                return best
            self.made += 1
            try:
                return self._make(size)
            except DeviceError:
                if not self._idle:
                    raise
                self._idle.clear()
                return self._make(size)

    def give(self, block: B) -> None:
        """Take a block back; nobody may use it any more."""
        self._returned.append(block)

    @property
    def idle(self) -> int:
        """Bytes of the blocks that wait to be taken."""
        with self._lock:
            self._sort_in()
            return sum(block.nbytes for block in self._idle)

    def _sort_in(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        total = sum(block.nbytes for block in self._idle)
        while total > self._kept:
            total -= self._idle.pop(0).nbytes
