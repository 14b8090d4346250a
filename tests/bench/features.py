"""Speed of the features on one core, bars per second.

Random-walk bars with ticks, whose CUSUM fires about every 170 bars; and a ramp, the worst case of
the CUSUM filter, whose walks never meet. Best of two runs; figures are printed, never asserted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from backtest.features.adx import directional
from backtest.features.cusum import DRIFT, THRESHOLD, cusum_filter
from backtest.features.market import market_features
from backtest.features.prices import differences
from backtest.features.rolling import quotient
from backtest.features.slow import slow_features
from backtest.features.volatility import sigma
from backtest.market.layout import Array
from opencl.devices import Device
from tests.bench.rows import Row

BARS = (10_000, 100_000, 2_000_000)  # the goals are for the last


def best_rate(function: Callable[[], object], n_bars: int) -> float:
    """Return bars per CPU second of the faster of two calls; busy neighbours do not count."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return n_bars / min(seconds)


class Bars(NamedTuple):
    """Columns of bars, [n] each."""

    open: Array
    high: Array
    low: Array
    close: Array
    volume: Array
    roll: Array
    time: Array  # ns

    @property
    def difference(self) -> Array:
        """Close to close, points."""
        return differences(self.open, self.close, self.roll)


def random_bars(n: int) -> Bars:
    """Return a random walk in ticks of a quarter, minute by minute."""
    rng = np.random.default_rng(0)
    close = 5000 + 0.25 * np.round(np.cumsum(rng.normal(0, 4.8, n)))
    open_ = close + 0.25 * np.round(rng.normal(0, 2, n))
    high = np.maximum(open_, close) + 0.25 * rng.integers(0, 5, n)
    low = np.minimum(open_, close) - 0.25 * rng.integers(0, 5, n)
    volume = rng.integers(0, 1000, n).astype(np.float64)
    stamps = np.arange(1, n + 1, dtype=np.int64) * 60_000_000_000
    return Bars(open_, high, low, close, volume, np.zeros(n, np.bool_), stamps)


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure the host's features; the device does not matter."""
    sizes = BARS[1:2] if quick else BARS
    return [row for n_bars in sizes for row in rates(n_bars, goals=n_bars == sizes[-1])]


def rates(n_bars: int, goals: bool) -> list[Row]:
    """Measure one number of bars."""
    bars = random_bars(n_bars)

    def adx_and_cusum() -> None:
        difference = bars.difference
        directional(bars.high, bars.low, bars.close)
        cusum_filter(quotient(difference, sigma(difference)), DRIFT, THRESHOLD)

    def cusum_of_ramp() -> None:
        cusum_filter(np.ones(n_bars), DRIFT, THRESHOLD)

    def all_columns() -> None:
        market_features(*bars)
        slow_features(*bars)

    measured = (
        ("ADX, DX, DI and CUSUM", adx_and_cusum, "features_adx"),
        ("CUSUM filter on a ramp", cusum_of_ramp, ""),
        ("all 42", lambda: market_features(*bars), "features_all"),
        ("all 42 and their slow twins", all_columns, ""),
    )
    return [
        Row(
            f"features: {name}, {n_bars:,} bars",
            best_rate(work, n_bars),
            "bars/s",
            "one core of the CPU",
            series=name,
            axis="bars",
            x=n_bars,
            goal=goal if goals else "",
        )
        for name, work, goal in measured
    ]
