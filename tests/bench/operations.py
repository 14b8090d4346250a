"""How many float32 operations a step of the market takes, counted while NumPy makes one."""

from __future__ import annotations

from typing import Any

import numpy as np

from backtest.market.layout import COMPONENTS
from backtest.market.reward import weighted_sum
from backtest.market.step import reset, step
from backtest.market.tape import Tape

# What a floating-point unit does; comparisons, selects, signs and loads are not counted.
COUNTED = {
    np.add, np.subtract, np.multiply, np.divide, np.sqrt, np.minimum, np.maximum, np.trunc,
}  # fmt: skip


class Counting(np.ndarray[Any, np.dtype[Any]]):
    """An array that counts the float32 operations made with it and with what comes of it."""

    operations = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Count one operation an element and make it."""
        if out := kwargs.get("out"):
            kwargs["out"] = tuple(map(_plain, out))
        made = getattr(ufunc, method)(*map(_plain, inputs), **kwargs)
        if ufunc in COUNTED and np.asarray(made).dtype == np.float32:
            Counting.operations += np.size(made)
        return _counting(made)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let selects hand the counting on."""
        return _counting(func(*map(_plain, args), **kwargs))


def step_operations(tape: Tape) -> int:
    """Return the float32 operations of one step of one living episode."""
    Counting.operations = 0
    one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
    action = np.array([[2, 2, 1, 0]])
    now, nxt = (_counting(tape.bars[i : i + 1]) for i in (0, 1))
    state = _counting(reset(tape.params, 1))
    aux = _counting(tape.aux[:1])
    _, result = step(tape.params, state, action, now, nxt, one, zero != 0, aux)
    weighted_sum(tape.params, {name: _counting(result[name]) for name in COMPONENTS})
    return Counting.operations


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Counting) else x


def _counting(x: Any) -> Any:
    return x.view(Counting) if isinstance(x, np.ndarray) and not isinstance(x, Counting) else x
