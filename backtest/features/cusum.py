"""The symmetric CUSUM filter (Page 1954): feature 41 and lists of events.

The recursion resets itself at its own events, so bar follows bar. `cusum_filter` gives the bits of
the plain loop anyway: it walks many stretches side by side from a guessed state, then walks each
stretch again from its true state until the two walks meet (a side at 0 has forgotten its past).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from backtest.errors import ConfigError, DataError
from backtest.features.prices import checked
from backtest.features.rolling import Floats

DRIFT = 0.5  # k of feature 41, sigmas a bar
THRESHOLD = 4.0  # h of feature 41, sigmas

State = tuple[float, float]  # S+ and -S- after resets, both >= 0

LANE = 1024  # bars walked one after the other
LANES = 1024  # stretches walked side by side
MEETING = 64  # bars walked again before looking whether the walks have met


class Cusum(NamedTuple):
    """What the filter saw at each bar, before its resets."""

    level: Floats  # max(S+, -S-), >= 0, float64[n]
    event: npt.NDArray[np.int8]  # +1 S+ passed the threshold, -1 S- did, else 0


def cusum_filter(x: Floats, drift: float, threshold: float | Floats) -> Cusum:
    """Run S+ = max(0, S+ + x - k) and S- = min(0, S- + x + k) from 0 through every row.

    Where S- < -h an event is recorded and S- restarts at 0; else where S+ > h the same for S+.

    Args:
        x: increments, finite, float64[n].
        drift: k, in units of x, >= 0.
        threshold: h, in units of x, for all rows or one a row.
    """
    n = len(x)
    h = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (n,))
    sides = np.empty((2, n))
    state: State = (0.0, 0.0)
    for start in range(0, n, LANE * LANES):
        part = slice(start, start + LANE * LANES)
        state = _walk(x[part], drift, h[part], state, sides[:, part])
    up, down = sides
    below = down > h
    event = ((up > h) & ~below).astype(np.int8) - below.astype(np.int8)
    return Cusum(np.maximum(up, down), event)


def cusum_events(
    close: npt.ArrayLike,
    threshold: float | npt.ArrayLike,
    mode: Literal["log", "difference"] = "log",
) -> npt.NDArray[np.int64]:
    """Return the bars at which the drift-free CUSUM filter of close-to-close changes fires.

    Lopez de Prado 2018, 2.5.2.1, with strict inequality; the event belongs to the bar whose close
    caused it, and the first bar can have none.

    Args:
        close: prices, points, shape [n].
        threshold: h > 0, for all bars or one a bar; log return (0.01 is 1 %) or points by mode.
        mode: "log" for changes of log close, "difference" for changes of close.

    Returns:
        Indices of bars, ascending, int64.

    Raises:
        DataError: a price that is not finite, or <= 0 in log mode; a threshold that is not > 0.
        ConfigError: an unknown mode.
    """
    prices = np.asarray(close, dtype=np.float64).reshape(-1)
    prices = checked("close", prices, len(prices))
    h = np.asarray(threshold, dtype=np.float64)
    if h.shape not in ((), prices.shape):
        raise DataError(f"cusum_events: threshold has shape {h.shape}, close {prices.shape}")
    h = np.broadcast_to(h, prices.shape)
    if not (h > 0).all() or not np.isfinite(h).all():
        row = int(np.argmin((h > 0) & np.isfinite(h)))
        raise DataError(
            f"cusum_events: threshold = {h[row]:g} at row {row}; give finite values > 0"
        )
    if mode == "log":
        if not (prices > 0).all():
            row = int(np.argmin(prices > 0))
            raise DataError(
                f"cusum_events: close = {prices[row]:g} at row {row} has no logarithm; use "
                'mode="difference" with a threshold in points'
            )
        prices = np.log(prices)
    elif mode != "difference":
        raise ConfigError(f'cusum_events: mode {mode!r} is not "log" or "difference"')
    if len(prices) < 2:
        return np.zeros(0, np.int64)
    return np.flatnonzero(cusum_filter(np.diff(prices), 0.0, h[1:]).event) + 1


def _walk(x: Floats, drift: float, h: Floats, state: State, sides: Floats) -> State:
    """Fill `sides` [2, n] (S+ and -S- before resets) from `state`; return the state at the end."""
    lanes = len(x) // LANE
    body = lanes * LANE
    if lanes > 1:
        _walk_lanes(x[:body], drift, h[:body], state, sides[:, :body])
        for start in range(0, body, LANE):
            lane = slice(start, start + LANE)
            if start and state != (0.0, 0.0):
                _walk_again(x[lane], drift, h[lane], state, sides[:, lane])
            last = start + LANE - 1
            state = _after(float(sides[0, last]), float(sides[1, last]), float(h[last]))
    else:
        body = 0
    sides[0, body:], sides[1, body:], state = _plain(x[body:], drift, h[body:], state)
    return state


def _walk_lanes(x: Floats, drift: float, h: Floats, state: State, sides: Floats) -> None:
    """Walk lanes of LANE bars side by side: the first from `state`, the others from 0."""
    lanes = len(x) // LANE
    moves = np.empty((LANE, 2, lanes))  # by bar of the lane, side, lane
    moves[:, 0] = x.reshape(lanes, LANE).T
    np.negative(moves[:, 0], out=moves[:, 1])
    limits = np.ascontiguousarray(h.reshape(lanes, LANE).T)
    walked = np.empty_like(moves)
    now = np.zeros((2, lanes))
    now[:, 0] = state
    over = np.empty((2, lanes), dtype=bool)
    for move, limit, row in zip(moves, limits, walked, strict=True):
        np.add(now, move, out=row)
        row -= drift
        np.maximum(row, 0.0, out=row)
        np.greater(row, limit, out=over)
        np.greater(over[0], over[1], out=over[0])  # S- first, S+ only if S- did not fire
        np.copyto(now, row)
        np.putmask(now, over, 0.0)
    for side in range(2):
        sides[side].reshape(lanes, LANE)[:] = walked[:, side].T


def _walk_again(x: Floats, drift: float, h: Floats, state: State, sides: Floats) -> None:
    """Correct `sides` of one lane from its true first state until the walks have met."""
    for start in range(0, len(x), MEETING):
        part = slice(start, start + MEETING)
        up, down, state = _plain(x[part], drift, h[part], state)
        last = min(start + MEETING, len(x)) - 1
        met = up[-1] == sides[0, last] and down[-1] == sides[1, last]
        sides[0, part], sides[1, part] = up, down
        if met:
            return


def _plain(
    x: Floats, drift: float, h: Floats, state: State
) -> tuple[list[float], list[float], State]:
    """Walk bar by bar: S+ and -S- before the resets of each bar, and the state after the last."""
    up, down = state
    ups, downs = [], []
    for move, limit in zip(x.tolist(), h.tolist(), strict=True):
        up = up + move - drift
        if up < 0.0:
            up = 0.0
        down = down - move - drift
        if down < 0.0:
            down = 0.0
        ups.append(up)
        downs.append(down)
        if down > limit:
            down = 0.0
        elif up > limit:
            up = 0.0
    return ups, downs, (up, down)


def _after(up: float, down: float, limit: float) -> State:
    """Reset the side that fired; S- has precedence."""
    if down > limit:
        return up, 0.0
    if up > limit:
        return 0.0, down
    return up, down
