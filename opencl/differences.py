"""One line of a verification: how many values of a column differ from the definition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.market.layout import Array


@dataclass(frozen=True)
class Row:
    """One column of one comparison.

    Attributes:
        what: what was run.
        column: of the result.
        values: how many were compared.
        different: how many differ, or differ by more than their tolerance.
        largest: the largest difference, absolute.
        ok: as it must be.
    """

    what: str
    column: str
    values: int
    different: int
    largest: float
    ok: bool


def compare(what: str, column: str, expected: Array, seen: Array, tolerance: float = 0.0) -> Row:
    """Compare one column; integers exactly, floats within a fraction of the largest value."""
    gap = np.abs(np.subtract(expected, seen, dtype=np.float64))
    if tolerance and expected.dtype.kind == "f":
        limit = tolerance * float(np.max(np.abs(expected), initial=0.0))
        different = int((~(gap <= limit)).sum())
    else:
        different = int((expected != seen).sum())
    largest = float(np.max(gap, initial=0.0))
    return Row(what, column, int(expected.size), different, largest, different == 0)
