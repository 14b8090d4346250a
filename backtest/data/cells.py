"""Text cells to numbers and flags, every cell checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.data.bars import Flags, Floats

BLANK = ("", "nan", "na", "n/a", "null", "none", "-", "--")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
INFINITY = r"^(?i)[+-]?inf(inity)?$"
TRUE = ("1", "1.0", "true", "t", "yes", "y")
FALSE = ("0", "0.0", "false", "f", "no", "n")


def numbers(text: Any, decimal: str = ".") -> tuple[Floats, Flags]:
    """Return float64[n] and bool[n] of the cells that hold text other than a number.

    Empty cells and the usual words for "nothing" are NaN.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if decimal == ".":
        try:
            return np.asarray(text.cast(pa.float64())), np.zeros(len(text), bool)
        except pa.ArrowInvalid:
            pass  # some cell is no plain number: look at each
    text = pc.utf8_trim_whitespace(text)
    blank = pc.is_in(pc.utf8_lower(text), pa.array(BLANK))
    wrong = False
    if decimal == ",":
        wrong = pc.match_substring(text, ".")
        text = pc.replace_substring(text, ",", ".")
    infinite = pc.match_substring_regex(text, INFINITY)
    fits = pc.or_(pc.match_substring_regex(text, NUMBER), infinite)
    fits = pc.and_not(pc.and_not(fits, wrong), blank)
    values = pc.if_else(fits, text, "nan").cast(pa.float64())
    return np.asarray(values), ~np.asarray(pc.or_(fits, blank))


def flags(text: Any) -> tuple[Flags, Flags]:
    """Return bool[n] and bool[n] of the cells that are neither true nor false; empty is False."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_lower(pc.utf8_trim_whitespace(text))
    true = pc.is_in(text, pa.array(TRUE))
    known = pc.or_(true, pc.is_in(text, pa.array((*FALSE, *BLANK))))
    return np.asarray(true), ~np.asarray(known)
