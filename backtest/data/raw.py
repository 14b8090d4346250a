"""What a reader hands over: columns in file order, nothing judged yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backtest.data.bars import Flags, Floats, Ints

NO_TIME = np.iinfo(np.int64).min  # an empty or unreadable time cell
PRICES = ("open", "high", "low", "close")


@dataclass(frozen=True)
class Unreadable:
    """A cell (or a whole row) that is not what its column holds.

    Attributes:
        row: file row.
        what: such as `close 'n.v.' is not a number`.
    """

    row: int
    what: str


@dataclass(frozen=True)
class RawBars:
    """A source as read.

    Attributes:
        stamp: int64[n], ns since 1970 of the clock the source uses, or of UTC when `zoned`.
        open: float64[n]; NaN where the cell is empty or unreadable; the others likewise.
        high: float64[n].
        low: float64[n].
        close: float64[n].
        volume: float64[n], or None where the source has no such column.
        roll: bool[n].
        row: int64[n], file row of each entry.
        unreadable: cells and rows that could not be read; such rows may be absent above.
        dated: the stamps carry no time of day.
        zoned: the stamps carry an offset, so they are UTC already.
        closes: the stamps are known to be bar closes (a bars file of ours).
    """

    stamp: Ints
    open: Floats
    high: Floats
    low: Floats
    close: Floats
    volume: Floats | None
    roll: Flags
    row: Ints
    unreadable: tuple[Unreadable, ...] = ()
    dated: bool = False
    zoned: bool = False
    closes: bool = False

    def __len__(self) -> int:
        return len(self.stamp)

    def take(self, rows: Ints | Flags) -> RawBars:
        """Return the rows of an index or a mask, in its order; the same object for all of them."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
        elif np.array_equal(rows, np.arange(len(self))):
            return self
        columns = ("stamp", *PRICES, "volume", "roll", "row")
        taken = {n: getattr(self, n)[rows] for n in columns if getattr(self, n) is not None}
        return replace(self, **taken)


@dataclass(frozen=True)
class Source:
    """An opened file: what every format's reader provides.

    Attributes:
        headers: column names, or empty names where the file has none.
        named: the file has a header.
        blocks: streams the columns at the given places as Arrow arrays, one mapping a block;
            it can be called again to start over.
        rows: maps positions in that stream to file rows, once the stream has ended.
        ragged: rows with a wrong number of columns; filled while the stream runs.
        closes: time is the bar close (a bars file of ours).
    """

    headers: Sequence[str]
    named: bool
    blocks: Callable[[Sequence[int]], Iterator[Mapping[int, Any]]]
    rows: Callable[[Ints], Ints]
    ragged: list[Unreadable]
    closes: bool = False
