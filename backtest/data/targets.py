"""Target positions from a file: one row a decision, one column a strategy, checked row by row.

A target stands until the next row: a bar without a row keeps the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backtest.data.bars import Bars, Floats, Ints
from backtest.data.source import kind
from backtest.errors import DataError

TOLERANCE = 1e-9  # of max_position: a third of a number may carry a rounding


@dataclass(frozen=True, eq=False)
class Targets:
    """Decisions at the closes of bars [first_bar, first_bar + n).

    Attributes:
        first_bar: global index of row 0.
        names: of the strategies.
        position: float64[n, len(names)], units wanted.
        ignored: rows at the last bar, which no bar follows: 0 or 1.
    """

    first_bar: int
    names: tuple[str, ...]
    position: Floats
    ignored: int

    def __len__(self) -> int:
        return len(self.position)


def read_targets(path: Path, bars: Bars, max_position: float) -> Targets:
    """Read a CSV or Parquet file with `bar` or `time` and one column a strategy.

    `time` is the bar's close, UTC, as in the bars file.

    Raises:
        DataError: names the column or the row that cannot be right, and the cure.
    """
    table, first_row = _table(path)
    keys = [name for name in ("bar", "time") if name in table.column_names]
    if len(keys) != 1:
        raise DataError(
            f"{path}: has the columns {', '.join(table.column_names)}; name the decision bar in "
            "one column, bar or time (UTC close)"
        )
    names = tuple(name for name in table.column_names if name != keys[0])
    if not names:
        raise DataError(f"{path}: holds no column of target positions beside {keys[0]}")
    if len(set(names)) != len(names):
        raise DataError(f"{path}: two columns have the same name; rename one")
    if not table.num_rows:
        raise DataError(f"{path}: holds no row")

    def row(place: int) -> str:
        return f"{path}: row {first_row + place}"

    bar = _bars_of(table[keys[0]], keys[0], bars, row)
    position = np.stack([_units(table[name], name, row) for name in names], axis=1)
    for place, column in np.argwhere(np.abs(position) > max_position * (1 + TOLERANCE))[:1]:
        raise DataError(
            f"{row(place)}: {names[column]} = {position[place, column]:g} units exceeds "
            f"max_position = {max_position:g}; scale the targets or raise "
            f"instruments.{bars.instrument}.max_position"
        )
    return _filled(path, bar, position, names, bars)


def _table(path: Path) -> tuple[Any, int]:
    """Return the file as an Arrow table, and the number its first row has for people."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if kind(path) == "parquet":
            return pyarrow.parquet.read_table(path, partitioning=None), 1
        return pyarrow.csv.read_csv(path), 2  # behind the header
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: cannot be read as a table ({error})") from None


def _bars_of(column: Any, name: str, bars: Bars, row: Any) -> Ints:
    """Return the bar of each decision, int64[rows], increasing."""
    import pyarrow as pa

    if column.null_count:
        place = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError(f"{row(place)}: {name} is empty; give every decision its bar")
    if name == "bar":
        if not pa.types.is_integer(column.type):
            raise DataError(f"{row(0)}: bar is {column.type}; give whole numbers")
        bar = np.asarray(column.cast(pa.int64()))
        for place in np.flatnonzero((bar < 0) | (bar >= len(bars)))[:1]:
            raise DataError(
                f"{row(place)}: bar {bar[place]} is not among the {len(bars):,} bars of "
                f"{bars.instrument}"
            )
    else:
        bar = _at(_nanoseconds(column, row), bars, row)
    for place in np.flatnonzero(np.diff(bar) <= 0)[:1]:
        raise DataError(
            f"{row(place + 1)}: bar {bar[place + 1]} does not follow bar {bar[place]}; sort the "
            "rows by time and keep one a bar"
        )
    return bar


def _nanoseconds(column: Any, row: Any) -> Ints:
    """Return times as int64[rows] ns since 1970 UTC; without a zone they are UTC."""
    import pyarrow as pa

    for kind_ in (pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:
            return np.asarray(column.cast(kind_).cast(pa.int64()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    raise DataError(f"{row(0)}: time is {column.type}; give UTC times such as 2020-01-31 21:00:00")


def _at(time: Ints, bars: Bars, row: Any) -> Ints:
    """Return the bars that close at these times."""
    bar = np.minimum(np.searchsorted(bars.time, time), len(bars) - 1)
    for place in np.flatnonzero(bars.time[bar] != time)[:1]:
        near = np.datetime64(int(bars.time[bar[place]]), "ns").astype("datetime64[s]")
        raise DataError(
            f"{row(place)}: no bar of {bars.instrument} closes at "
            f"{np.datetime64(int(time[place]), 'ns').astype('datetime64[s]')}Z; the next one "
            f"closes at {near}Z"
        )
    return bar


def _units(column: Any, name: str, row: Any) -> Floats:
    """Return one strategy's targets, float64[rows], all finite."""
    import pyarrow as pa

    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)  # null: all empty
    if not any(test(column.type) for test in is_number):
        raise DataError(f"{row(0)}: column {name} is {column.type}; target positions are numbers")
    values: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(~np.isfinite(values))[:1]:
        raise DataError(
            f"{row(place)}: {name} is empty or not finite; write the units wanted, 0 to be flat"
        )
    return values


def _filled(path: Path, bar: Ints, position: Floats, names: tuple[str, ...], bars: Bars) -> Targets:
    """Return one row for every bar from the first decision to the last that a bar follows."""
    ignored = int(bar[-1] == len(bars) - 1)
    stop = int(bar[-1]) + 1 - ignored
    first = int(bar[0])
    if stop <= first:
        raise DataError(
            f"{path}: its only decision is at the last bar of {bars.instrument}, {bar[-1]}, which "
            "no bar follows; decide one bar earlier"
        )
    given = np.searchsorted(bar, np.arange(first, stop), side="right") - 1
    return Targets(first, names, position[given], ignored)
