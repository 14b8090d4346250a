"""The look-ahead checker: does any feature, or anything a fold fits, change when the future does?

Two tests that need no trust in the code under test: cutting the history at a bar must leave every
earlier row as it was (prefix invariance), and changing every later bar must do the same (future
perturbation). Equality is exact. `next_difference` is a planted leak that both must catch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from backtest.data.bars import Bars
from backtest.features.names import COLUMNS
from backtest.features.table import FeatureTable, compute
from backtest.market.layout import Array

Columns = Mapping[str, Array]
Features = Callable[[Bars], Columns]
CANARY = "next_difference"
# Later bars are moved by this many of their own ranges: far, finite, and not by a constant.
SHOCK = 10.0


@dataclass(frozen=True)
class Leak:
    """One column that saw the future."""

    column: str
    cut: int  # bars from here on were cut off or changed
    bar: int  # first earlier bar whose value changed
    test: str  # prefix, perturbation


def shipped(bars: Bars) -> Columns:
    """Return every column of the feature file by name."""
    return table_columns(compute(bars))


def with_canary(bars: Bars) -> Columns:
    """Return the shipped columns and one that is the next bar's difference, a planted leak."""
    ahead = np.append(np.diff(bars.close), 0.0)
    return {**shipped(bars), CANARY: ahead}


def table_columns(table: FeatureTable) -> Columns:
    """Return sigma, the CUSUM event and the 84 features of a table by name."""
    return {name: table[name] for name in ("sigma", "cusum_event", *COLUMNS)}


def cuts(n: int, count: int) -> Array:
    """Return `count` bars at which to cut a history of n bars, in every phase of a slow bar."""
    places = np.linspace(n * 0.2, n - 2, count).astype(int)
    return np.unique(places + np.arange(count) % 5 - 2)


def perturbed(bars: Bars, cut: int, seed: int = 0) -> Bars:
    """Return the bars with everything from `cut` on changed: prices, volumes and roll flags."""
    rng = np.random.default_rng([seed, cut])
    n = len(bars) - cut
    spread = np.ptp(bars.close) or 1.0
    move = np.cumsum(rng.normal(0, SHOCK * spread / max(n, 1) ** 0.5, n)) + SHOCK * spread
    changed = {}
    for name in ("open", "high", "low", "close"):
        column = getattr(bars, name).copy()
        column[cut:] += move
        changed[name] = column
    volume = bars.volume.copy()
    volume[cut:] = volume[cut:] * rng.uniform(0.1, 10, n) + 1
    roll = bars.roll.copy()
    roll[cut:] = rng.random(n) < 0.1
    return replace(bars, **changed, volume=volume, roll=roll)


def leaks(bars: Bars, features: Features = shipped, count: int = 7) -> list[Leak]:
    """Return every column that sees the future, with the first bar that shows it.

    Args:
        bars: at least 100.
        features: computes columns of len(bars) rows.
        count: histories to cut.
    """
    whole = features(bars)
    found: list[Leak] = []
    caught: set[tuple[str, str]] = set()
    for cut in cuts(len(bars), count):
        for test, other in (("prefix", bars.prefix(cut)), ("perturbation", perturbed(bars, cut))):
            seen = features(other)
            for name, column in whole.items():
                differs = different(column[:cut], seen[name][:cut])
                if differs.any() and (name, test) not in caught:
                    caught.add((name, test))
                    found.append(Leak(name, int(cut), int(differs.argmax()), test))
    return found


def different(a: Array, b: Array) -> Array:
    """Return where two arrays differ in value, NaN equal to NaN, bool of the first axis."""
    unequal = (a != b) & ~((a != a) & (b != b))
    rows: Array = unequal.reshape(len(a), -1).any(axis=1)
    return rows
