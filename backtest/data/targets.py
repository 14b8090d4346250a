"""Target positions from a file, checked row by row, wide or long.

Wide: one row a decision bar, one column a strategy. Long: columns strategy and position, one row a
strategy and bar. A target stands until the strategy's next row; before its first it is flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.data.bars import Bars, Floats, Ints
from backtest.data.decision_bars import KEYS, Row, decision_bars, increasing
from backtest.data.source import kind
from backtest.errors import DataError

TOLERANCE = 1e-9  # of max_position: a third of a number may carry a rounding
LONG = ("strategy", "position")


@dataclass(frozen=True, eq=False)
class Targets:
    """Decisions at the closes of bars [first_bar, first_bar + n).

    Attributes:
        first_bar: global index of row 0.
        names: of the strategies.
        position: float32 (float16 or int8 save transfers) [n, len(names)], units wanted.
        ignored: rows at the last bar, which no bar follows: 0 or 1.
    """

    first_bar: int
    names: tuple[str, ...]
    position: npt.NDArray[Any]
    ignored: int = 0

    @classmethod
    def of_array(cls, position: npt.NDArray[Any], first_bar: int = 0) -> Targets:
        """Return targets [n, strategies] of an array, decided from bar `first_bar` on.

        float32, float16 and int8 stay what they are, anything else becomes float32.
        """
        kept = position.dtype in (np.float32, np.float16, np.int8)
        names = tuple(str(i) for i in range(position.shape[1]))
        return cls(first_bar, names, position if kept else position.astype(np.float32))

    @property
    def steps(self) -> int:
        """Decisions."""
        return len(self.position)

    def read(self, names: Sequence[str]) -> Targets:
        """Return some strategies."""
        place = {name: i for i, name in enumerate(self.names)}
        at = [place[name] for name in names]
        return Targets(self.first_bar, tuple(names), self.position[:, at], self.ignored)

    def check(self, max_position: float) -> None:
        """Refuse targets that are not finite or beyond the largest position.

        Raises:
            DataError: names bar and strategy.
        """
        most = np.float32(max_position * (1 + TOLERANCE))
        # NaN is not within either
        within = (self.position <= most) & (self.position >= -most)
        if not within.all():
            step, column = np.argwhere(~within)[0]
            raise DataError(
                f"bar {self.first_bar + step}: {self.names[column]} = "
                f"{self.position[step, column]:g} units; a target is finite and within "
                f"max_position = {max_position:g}"
            )


class TargetFile:
    """A CSV or Parquet file of target positions; strategies are read a block at a time.

    Attributes:
        names: of the strategies.
        first_bar: of the first decision.
        steps: decisions, from the first bar to the last that a bar follows.
        ignored: rows at the last bar, which no bar follows: 0 or 1.
    """

    def __init__(self, path: Path, bars: Bars, max_position: float) -> None:
        """Read what says which bars and strategies there are, and check it.

        Args:
            path: with `bar`, or `time` (the bar's close, UTC, as in the bars file), and one column
                a strategy, or the columns strategy and position.
            bars: of the instrument.
            max_position: units; no target may be larger.

        Raises:
            DataError: names the column or the row that cannot be right, and the cure.
        """
        self._path, self._bars, self._most = path, bars, max_position
        self._table, columns, first_row = _opened(path)
        self._row: Row = lambda place: f"{path}: row {first_row + place}"
        keys = [name for name in KEYS if name in columns]
        if len(keys) != 1:
            raise DataError(
                f"{path}: has the columns {', '.join(columns[:9])}; name the decision bar in one "
                "column, bar or time (UTC close)"
            )
        names = [name for name in columns if name != keys[0]]
        if not names:
            raise DataError(f"{path}: holds no column of target positions beside {keys[0]}")
        if len(set(names)) != len(names):
            raise DataError(f"{path}: two columns have the same name; rename one")
        key = self._read([keys[0]])[keys[0]]
        if not len(key):
            raise DataError(f"{path}: holds no row")
        self._bar = decision_bars(key, keys[0], bars, self._row)
        self._long = sorted(names) == sorted(LONG)
        if self._long:
            self.names = self._strategies()
        else:
            increasing(self._bar, np.arange(len(self._bar)), self._row)
            self.names = tuple(names)
        last = int(self._bar.max())
        self.ignored = int(last == len(bars) - 1)
        self.first_bar = int(self._bar.min())
        self.steps = last + 1 - self.ignored - self.first_bar
        if self.steps < 1:
            raise DataError(
                f"{path}: its only decision is at the last bar of {bars.instrument}, {last}, which "
                "no bar follows; decide one bar earlier"
            )

    def read(self, names: Sequence[str] | None = None) -> Targets:
        """Return the targets of some strategies, None: of all.

        Raises:
            DataError: names the row that cannot be right, or a strategy that the file lacks.
        """
        names = self.names if names is None else tuple(names)
        known = frozenset(self.names)
        for name in names:
            if name not in known:
                raise DataError(
                    f"{self._path}: holds no strategy {name}; it has {', '.join(self.names[:9])}"
                )
        position = self._of_rows(names) if self._long else self._of_columns(names)
        return Targets(self.first_bar, names, position, self.ignored)

    def _read(self, columns: Sequence[str]) -> Any:
        """Return columns as an Arrow table."""
        if self._table is not None:
            return self._table.select(list(columns))
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self._path, columns=list(columns), partitioning=None)

    def _of_columns(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the targets of columns, float32[steps, len(names)]."""
        table = self._read(names)
        rows = np.arange(len(self._bar))
        given = np.empty((len(names), len(self._bar)), np.float32)
        for i, name in enumerate(names):
            values = units(table[name], name, self._row)
            self._check_size(values, np.full(len(values), name), rows)
            given[i] = values
        bars = np.arange(self.first_bar, self.first_bar + self.steps)
        row = np.searchsorted(self._bar, bars, side="right") - 1
        return np.ascontiguousarray(given.T if self.steps == given.shape[1] else given[:, row].T)

    def _strategies(self) -> tuple[str, ...]:
        """Return the strategies of a long file, in the order of their first rows."""
        column = self._read(["strategy"])["strategy"]
        if column.null_count:
            place = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise DataError(f"{self._row(place)}: strategy is empty; give every row its strategy")
        coded = column.combine_chunks().dictionary_encode()
        self._code = np.asarray(coded.indices)
        self._position = units(self._read(["position"])["position"], "position", self._row)
        names = tuple(str(name) for name in coded.dictionary.to_pylist())
        order = np.argsort(self._code, kind="stable")
        self._order, self._edges = order, np.searchsorted(self._code[order], range(len(names) + 1))
        for a, b in zip(self._edges[:-1], self._edges[1:], strict=True):
            increasing(self._bar[order[a:b]], order[a:b], self._row)
        self._check_size(self._position, np.array(names)[self._code], np.arange(len(self._code)))
        return names

    def _of_rows(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the targets of a long file's strategies, float32[steps, len(names)]."""
        out = np.zeros((self.steps, len(names)), np.float32)
        place = {name: i for i, name in enumerate(self.names)}
        for i, name in enumerate(names):
            rows = self._order[self._edges[place[name]] : self._edges[place[name] + 1]]
            at = np.append(self._bar[rows] - self.first_bar, self.steps)
            out[at[0] :, i] = np.repeat(self._position[rows], np.diff(np.minimum(at, self.steps)))
        return out

    def _check_size(self, values: Floats, names: npt.NDArray[np.str_], rows: Ints) -> None:
        """Refuse a target beyond the largest position."""
        for place in np.flatnonzero(np.abs(values) > self._most * (1 + TOLERANCE))[:1]:
            raise DataError(
                f"{self._row(int(rows[place]))}: {names[place]} = {values[place]:g} units exceeds "
                f"max_position = {self._most:g}; scale the targets or raise "
                f"instruments.{self._bars.instrument}.max_position"
            )


def _opened(path: Path) -> tuple[Any, list[str], int]:
    """Return a CSV's table (None for Parquet), the columns, and the number of the first row."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if kind(path) == "parquet":
            return None, pyarrow.parquet.read_schema(path).names, 1
        table = pyarrow.csv.read_csv(path)
        return table, table.column_names, 2  # behind the header
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: cannot be read as a table ({error})") from None


def units(column: Any, name: str, row: Row) -> Floats:
    """Return targets float64[rows], all finite.

    Raises:
        DataError: the column is no number, or a row is empty or not finite.
    """
    import pyarrow as pa

    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)  # null: all empty
    if not any(test(column.type) for test in is_number):
        raise DataError(f"{row(0)}: column {name} is {column.type}; target positions are numbers")
    values: Floats = column.cast(pa.float64()).to_numpy()
    for place in np.flatnonzero(~np.isfinite(values))[:1]:
        raise DataError(
            f"{row(int(place))}: {name} is empty or not finite; write the units wanted, 0 to be "
            "flat"
        )
    return values
