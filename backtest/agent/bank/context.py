"""The first look at contexts: their centre, and how alike two random ones are."""

from __future__ import annotations

import numpy as np

from backtest.agent.bank.ordered import LEAST, ordered_sum, square
from backtest.agent.bank.state import AUTO_QUANTILE, QUANTILES, BankState, Floats

PAIRS = 4096


def fit_context(
    state: BankState, contexts: Floats, rng: np.random.Generator, *, mean: bool, auto: bool
) -> None:
    """Set centre, quantiles of the cosine of 4,096 random pairs, and an automatic threshold.

    Args:
        state: of an empty bank; changed in place.
        contexts: float32[n, K]; rows that are not finite are left out (counted).
        rng: draws the pairs, two different rows each.
        mean: the centre is the mean of the contexts; else 0.
        auto: the threshold becomes the 0.9 quantile.

    Raises:
        ValueError: fewer than two finite contexts, or the bank holds keys under another centre.
    """
    if state.used.any() or state.pool_used.any() or state.cell_used.any():
        raise ValueError("the bank already holds keys: fit contexts before the first update")
    finite = np.isfinite(square(contexts))
    rows = contexts[finite]
    if len(rows) < 2:
        raise ValueError(f"{len(rows)} finite contexts of {len(contexts)}: at least 2 are needed")
    state.count("non_finite", int(len(contexts) - len(rows)))
    # the mean in float64 on the host: it is made once and then only read
    center = rows.mean(axis=0, dtype=np.float64).astype(np.float32) if mean else 0
    state.center[...] = center
    first = rng.integers(0, len(rows), PAIRS)
    second = rng.integers(0, len(rows) - 1, PAIRS)
    second += second >= first
    cosine = pair_cosines(rows, state.center, first, second)
    state.fitted[...] = 1
    if len(cosine):
        state.quantiles[:] = np.quantile(cosine.astype(np.float64), QUANTILES)
        if auto:
            state.threshold[...] = state.quantiles[AUTO_QUANTILE]


def pair_cosines(
    rows: Floats,
    center: Floats,
    first: np.ndarray[tuple[int], np.dtype[np.int64]],
    second: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Floats:
    """Return the cosine of each pair of centred rows; pairs with a zero norm are left out."""
    parts = []
    for start in range(0, len(first), 256):  # whole pairs of wide contexts would not fit memory
        a = rows[first[start : start + 256]] - center
        b = rows[second[start : start + 256]] - center
        aa, bb = square(a), square(b)
        known = (aa >= LEAST) & (bb >= LEAST)
        parts.append(ordered_sum(a[known] * b[known]) / (np.sqrt(aa[known]) * np.sqrt(bb[known])))
    return np.concatenate(parts)
