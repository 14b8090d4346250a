"""Windows of many folds as one tape, so that one launch plays them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backtest.market.layout import PARAMS, Array
from backtest.market.tape import Tape


@dataclass(frozen=True)
class Windows:
    """Rows of several windows behind one another.

    The rows are copies of what each window's own tape holds, so prices stand above their window's
    base and states are scaled as their fold scales them. Bars of this tape count its rows.

    Attributes:
        tape: all rows; its base is that of no window in particular.
        states: float32[n, 115], the bars' part of the state.
        first: int64[W], row of each window's first decision.
        steps: int64[W], decisions of each window: all its bars but the last.
        base: float32[W], points, of each window's prices.
    """

    tape: Tape
    states: Array
    first: Array
    steps: Array
    base: Array

    @classmethod
    def joined(cls, windows: Sequence[tuple[Tape, Array]]) -> Windows:
        """Join windows: tapes and the states float32[n, 115] of the same bars.

        Raises:
            ValueError: their markets differ in more than the price base.
        """
        rules = [_rules(tape) for tape, _ in windows]
        if any(other != rules[0] for other in rules):
            raise ValueError("windows of different markets; one launch plays one instrument")
        size = np.array([len(tape.bars) for tape, _ in windows])
        # the longest is last: a walk as long as the longest leaves the tape nowhere
        order = np.argsort(size, kind="stable")
        first = np.empty(len(size), np.int64)
        first[order] = np.cumsum(size[order]) - size[order]
        rows = [windows[i] for i in order]
        tape = Tape(
            0,
            np.concatenate([tape.bars for tape, _ in rows]),
            rows[0][0].params,
            np.concatenate([tape.aux for tape, _ in rows]),
        )
        states = np.concatenate([state for _, state in rows])
        base = np.array([tape.params["base"] for tape, _ in windows], np.float32)
        return cls(tape, states, first, size - 1, base)


def _rules(tape: Tape) -> bytes:
    """Return everything of the parameters but the base."""
    rules = np.array(tape.params, PARAMS.dtype)
    rules["base"] = 0.0
    return rules.tobytes()
