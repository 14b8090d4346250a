"""The bar at whose close each row of somebody else's decisions is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backtest.data.bars import Bars, Ints
from backtest.errors import DataError

KEYS = ("bar", "time")  # how a column may name it
Row = Callable[[int], str]  # what people call the row at a place


def decision_bars(column: Any, name: str, bars: Bars, row: Row) -> Ints:
    """Return the bar of each row, int64[rows].

    Args:
        column: of an Arrow table.
        name: bar, or time: the bar's close in UTC.
        bars: of the instrument.
        row: what people call the row at a place.

    Raises:
        DataError: a row is empty, of another type, or not the close of a bar.
    """
    import pyarrow as pa

    if column.null_count:
        place = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError(f"{row(place)}: {name} is empty; give every decision its bar")
    if name == "time":
        return _at(_nanoseconds(column, row), bars, row)
    if not pa.types.is_integer(column.type):
        raise DataError(f"{row(0)}: bar is {column.type}; give whole numbers")
    bar = np.asarray(column.cast(pa.int64()))
    for place in np.flatnonzero((bar < 0) | (bar >= len(bars)))[:1]:
        raise DataError(
            f"{row(int(place))}: bar {bar[place]} is not among the {len(bars):,} bars of "
            f"{bars.instrument}"
        )
    return bar


def increasing(bar: Ints, rows: Ints, row: Row) -> None:
    """Refuse bars that do not increase.

    Args:
        bar: int64[n], of one strategy.
        rows: their places in the file.
        row: what people call the row at a place.

    Raises:
        DataError: names the first row that does not follow.
    """
    for place in np.flatnonzero(np.diff(bar) <= 0)[:1]:
        raise DataError(
            f"{row(int(rows[place + 1]))}: bar {bar[place + 1]} does not follow bar {bar[place]}; "
            "sort the rows by time and keep one a bar"
        )


def _nanoseconds(column: Any, row: Row) -> Ints:
    """Return times as int64[rows] ns since 1970 UTC; without a zone they are UTC."""
    import pyarrow as pa

    for kind in (pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:
            return np.asarray(column.cast(kind).cast(pa.int64()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    raise DataError(f"{row(0)}: time is {column.type}; give UTC times such as 2020-01-31 21:00:00")


def _at(time: Ints, bars: Bars, row: Row) -> Ints:
    """Return the bars that close at these times."""
    bar = np.minimum(np.searchsorted(bars.time, time), len(bars) - 1)
    for place in np.flatnonzero(bars.time[bar] != time)[:1]:
        near = np.datetime64(int(bars.time[bar[place]]), "ns").astype("datetime64[s]")
        raise DataError(
            f"{row(int(place))}: no bar of {bars.instrument} closes at "
            f"{np.datetime64(int(time[place]), 'ns').astype('datetime64[s]')}Z; the next one "
            f"closes at {near}Z"
        )
    return bar
