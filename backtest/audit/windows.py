"""Which episodes of the user's bars are audited, and at what size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backtest import rng
from backtest.errors import ConfigError, DataError
from backtest.market.layout import Array, Formula
from backtest.market.reward import regime
from backtest.market.tape import Tape
from backtest.splits import Window


def capped(horizons: Sequence[int], windows: Sequence[Window]) -> tuple[int, ...]:
    """Return the distinct horizons, ascending, none longer than the longest window allows.

    Train decisions run from `start` to `stop - 2`, so a window of k bars holds k - 1 steps.

    Raises:
        DataError: no window holds a step.
    """
    longest = max((len(window) for window in windows), default=0) - 1
    if longest < 1:
        raise DataError("reward audit: no train window holds 2 bars; check [folds] and the bars")
    return tuple(sorted({min(horizon, longest) for horizon in horizons}))


def union(windows: Sequence[Window]) -> Array:
    """Return the bars of any window, ascending, int64; each once, however many windows hold it."""
    first = min(window.start for window in windows)
    inside = np.zeros(max(window.stop for window in windows) - first, bool)
    for window in windows:
        inside[window.start - first : window.stop - first] = True
    return first + np.flatnonzero(inside)


def random_starts(windows: Sequence[Window], steps: int, n: int, key: Array) -> Array:
    """Return first decision bars, int64[n], uniform over all bars that begin a whole episode.

    Windows may overlap; a bar that several of them hold is no likelier than another.
    """
    bars = union([Window(w.start, w.stop - steps) for w in windows if len(w) > steps])
    # two draws: 24 bits alone would miss bars of a long history
    high, low = (rng.uniform(key, rng.Stage.START, 0, np.arange(n), steps, d) for d in (0, 1))
    u = high.astype(np.float64) + low.astype(np.float64) * 2.0**-24
    starts: Array = bars[(u * len(bars)).astype(np.int64)]
    return starts


def notional_ratio(tape: Tape, bars: Array) -> float:
    """Return the notional of a full position over the initial capital, at the median price."""
    p = tape.params
    # float64 before the base is added: a float32 sum would round the price
    price = np.abs(tape.at(bars)["close"].astype(np.float64) + float(p["base"]))
    notional = float(np.median(price)) * float(p["mult"]) * float(p["max_position"])
    return notional / float(p["initial_capital"])


def at_notional(tape: Tape, windows: Sequence[Window], ratio: float) -> Tape:
    """Return the tape with max_position such that `notional_ratio` of the windows is `ratio`.

    Raises:
        ConfigError: a third of the position would be less than a lot, or float32 equity could not
            see a tick of it.
    """
    params = tape.params.copy()
    units = params["max_position"] * ratio / notional_ratio(tape, union(windows))
    params["max_position"] = units
    if units / 3 < params["lot_size"] * (1 - 1e-6):
        raise ConfigError(
            f"reward audit at {ratio:g}x notional: a third of max_position = {units:g} is below "
            f"lot_size = {params['lot_size']:g}; use more notional or market.initial_capital"
        )
    tick = float(params["tick_size"] * params["mult"] * units)
    if tick < 2.0**-22 * params["initial_capital"]:
        raise ConfigError(
            f"reward audit at {ratio:g}x notional: a tick of max_position = {units:g} is worth "
            f"{tick:g}, which float32 equity of {params['initial_capital']:g} cannot see; use more "
            "notional"
        )
    return replace(tape, params=params)


def regime_shares(tape: Tape, bars: Array) -> tuple[dict[str, str | float], ...]:
    """Return how often trend and vol sit at their limits, one row by formula and factor.

    Args:
        tape: bars and parameters.
        bars: int[n], global indices.

    Returns:
        Rows of formula, factor ("trend" or "vol"), floor and ceiling: fractions of the bars at 0.5
        and at 2.
    """
    records = tape.at(bars)
    rows: list[dict[str, str | float]] = []
    for formula in Formula:
        params = tape.params.copy()
        params["formula"] = formula
        factors = zip(
            ("trend", "vol"), regime(params, records["adx"], records["cusum"]), strict=True
        )
        for factor, value in factors:
            rows.append(
                {
                    "formula": formula.name.lower(),
                    "factor": factor,
                    "floor": float((value == 0.5).mean()),
                    "ceiling": float((value == 2).mean()),
                }
            )
    return tuple(rows)
