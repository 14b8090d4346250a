"""Given positions of many strategies: figures of all from the device, beside an account of each.

By wall time from NumPy arrays to NumPy arrays: targets up, kernels, session closes back, ratios.
The account (float64, trades, every metric, an interval) is what `skillwalk simulate` keeps of few.
Both must agree on a sample before the clock starts.
"""

from __future__ import annotations

import time

import numpy as np

from backtest.config import Config, parse
from backtest.data.bars import Bars
from backtest.data.targets import Targets
from opencl.devices import Device
from opencl.memory import told_bytes
from opencl.strategies import score
from opencl.target_run import run_targets
from tests.bench.rows import Row, wall_seconds
from tests.bench.scene import PRICE, SIGMA, TICK

BARS = {"gpu": 50_000, "cpu": 10_000}
STRATEGIES = {"gpu": (1024, 8192), "cpu": (256, 2048)}
SAMPLE = 3
CLOSE = 2e-3  # relative, float32 against float64
AGREED = ("net_return", "sharpe", "max_drawdown", "n_trades", "turnover", "costs")


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure one device."""
    kind = "gpu" if device.kind == "gpu" else "cpu"
    n, counts = BARS[kind] // (4 if quick else 1), STRATEGIES[kind]
    config, bars = settings(), prices(n)
    positions = np.random.default_rng(1).integers(-1, 2, (n - 1, counts[-1]), np.int8)
    # held for about ten bars
    held = np.random.default_rng(2).random((n - 1, 1)) < 0.1
    row = np.maximum.accumulate(np.where(held[:, 0], np.arange(n - 1), 0))
    positions = positions[row]
    seconds = check(device, config, bars, Targets.of_array(positions[:, :SAMPLE]))
    rows = [
        Row(
            "strategies, float64 account of each",
            (n - 1) / seconds,
            "bars x strategies/s",
            f"{seconds:.3g} s a strategy of {n - 1:,} decisions, every metric and an interval",
        )
    ]
    for count in counts[-1:] if quick else counts:
        targets = Targets.of_array(np.ascontiguousarray(positions[:, :count]))
        wall = wall_seconds(lambda targets=targets: score(config, bars, targets, device), 3)
        found = score(config, bars, targets, device)
        rows.append(
            Row(
                f"strategies, figures of {count:,}",
                count * (n - 1) / wall,
                "bars x strategies/s",
                f"{wall:.3g} s, {count / wall * seconds:,.0f} times the accounts; {found.blocks} "
                f"blocks, {told_bytes(found.planned)} planned, int8 targets",
                series="figures, sessions back",
                axis="strategies",
                x=count,
            )
        )
    return rows


def settings() -> Config:
    """Return an index future of minutes with all costs."""
    return parse(
        {
            "instruments": {
                "BENCH": {
                    "point_value": 50.0,
                    "tick_size": TICK,
                    "commission": 2.0,
                    "half_spread": 0.125,
                    "calendar": "24/7",
                }
            },
            "market": {"initial_capital": 1e6},
        }
    )


def prices(n: int) -> Bars:
    """Return a random walk of one minute bars."""
    close = PRICE + TICK * np.round(np.cumsum(np.random.default_rng(0).normal(0, SIGMA, n)) / TICK)
    time = np.datetime64("2020-01-01T00:01") + np.arange(n) * np.timedelta64(1, "m")
    return Bars.of_prices("BENCH", time, np.append(close[:1], close[:-1]), close)


def check(device: Device, config: Config, bars: Bars, sample: Targets) -> float:
    """Compare figures and accounts, and return the seconds that one account takes."""
    run_targets(config, bars, sample.read(sample.names[:1]), device)  # loads and compiles
    begin = time.perf_counter()
    outcomes = run_targets(config, bars, sample, device)
    seconds = (time.perf_counter() - begin) / len(outcomes)
    found = score(config, bars, sample, device)
    for place, outcome in enumerate(outcomes):
        wanted = {**outcome.metrics, "costs": float(outcome.account.cost.sum())}
        for name in AGREED:
            value, seen = wanted[name], float(found[name][place])
            if value is None:
                agree = bool(np.isnan(seen))
            else:
                agree = abs(seen - value) <= CLOSE * max(abs(value), 0.01)
            if not agree:
                raise AssertionError(f"{device.name}: {name} is not the account's; not timed")
    return seconds
