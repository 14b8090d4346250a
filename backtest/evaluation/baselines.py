"""Baselines of a test window as target positions; they trade through the same kernel and costs.

flat, buy_and_hold, inverse (short and hold: the opposite of buy and hold), adx_trend (with the
directional movement while ADX > 25, else flat), random (draws with the policy's turnover).
"""

from __future__ import annotations

import numpy as np

from backtest import rng
from backtest.features.names import ADX, FEATURES
from backtest.features.table import FeatureTable
from backtest.market.layout import Array

DETERMINISTIC = ("flat", "buy_and_hold", "inverse", "adx_trend")
RANDOM = "random"
TRENDING = 25.0  # ADX above which a market is said to trend (Wilder 1978)
# Mean |change| in positions of a uniform draw from -1, 0, 1: against one like it, and from flat.
CHANGE, FIRST_CHANGE = 8 / 9, 2 / 3


def deterministic_targets(table: FeatureTable, max_position: float) -> Array:
    """Return the targets of `DETERMINISTIC` for decisions on every row, float32[n, 4], units."""
    plus, minus = (table.market[:, FEATURES.index(name)] for name in ("plus_di_14", "minus_di_14"))
    trend = np.where(table.market[:, ADX] > TRENDING, np.sign(plus - minus), 0.0)
    ones = np.ones(len(table))
    columns = np.stack([0 * ones, ones, -ones, trend], axis=1)
    return (columns * max_position).astype(np.float32)


def random_targets(n: int, draws: int, turnover: float, max_position: float, key: Array) -> Array:
    """Return draws of a random policy, float32[n, draws], units.

    Each step takes, with the probability that gives the wanted turnover, a fresh position out of
    short, flat and long at full size.

    Args:
        n: steps.
        draws: number of policies.
        turnover: units traded per step to match on average; lots and bars without volume may take
            something away, and more than a fresh position every step is not reached.
        max_position: units.
        key: uint32[2], of the fold.
    """
    probability = fresh_probability(n, turnover / max_position)
    step, draw = np.arange(n)[:, None], np.arange(draws)[None, :]
    u = rng.uniform(key, rng.Stage.BASELINE, draw, 0, step, 0)
    fresh = np.floor(rng.uniform(key, rng.Stage.BASELINE, draw, 0, step, 1) * 3) - 1
    # the last step that drew anew; before the first draw the policy is flat
    drawn = np.maximum.accumulate(np.where(u < probability, step, -1), axis=0)
    held = np.take_along_axis(fresh, np.maximum(drawn, 0), axis=0)
    return (np.where(drawn < 0, 0.0, held) * max_position).astype(np.float32)


def fresh_probability(n: int, turnover: float) -> float:
    """Return the probability of a fresh position in each of n steps that trades `turnover` a step.

    With probability p the expected sum of changes is CHANGE*n*p, less what the first draw, from
    flat, moves less: (CHANGE - FIRST_CHANGE)*(1 - (1 - p)^n).
    """
    low, high = 0.0, 1.0
    for _ in range(30):
        p = (low + high) / 2
        expected = CHANGE * n * p - (CHANGE - FIRST_CHANGE) * (1 - (1 - p) ** n)
        low, high = (p, high) if expected < turnover * n else (low, p)
    return low
