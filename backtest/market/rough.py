"""Rough markets on purpose: bars that touch every rule, for comparing implementations.

Rolls, gaps, bars without volume, prices through zero, still bars, sigma of zero, an account that
can be ruined. Nothing here resembles a real instrument; the audit has its own synthetic bars.
"""

from __future__ import annotations

import numpy as np

from backtest.config import Config, Instrument, Market, Reward
from backtest.market.layout import BAR, BRANCHES, Array, BarFlag, Fill, Formula
from backtest.market.tape import Tape, market_params

BASE = 7.5  # points; not zero, so that costs must add it back
DEEP = 0.5  # sigmas, offset of the deep limit


def rough_params(formula: Formula, fill: Fill, lot_size: float = 0.0) -> Array:
    """Return `MarketParams` with every cost above zero and an account that some episodes ruin."""
    config = Config(
        reward=Reward.model_validate({"formula": formula.name.lower()}),
        market=Market.model_validate(
            {"fill": fill.name.lower(), "initial_capital": 25.0, "ruin_level": 1.0}
        ),
    )
    instrument = Instrument(
        point_value=1.25,
        tick_size=0.25,
        lot_size=lot_size,
        max_position=3.0,
        commission=0.01,
        half_spread=0.02,
        slippage=0.01,
        tx_cost_multiplier=1e-4,
        limit_offsets=(0.1, DEEP),
    )
    return market_params(config, instrument, BASE)


def rough_bars(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Return `Bar` records [n] and the forecast aux float32[n] in [-1, 1]."""
    rng = np.random.default_rng(seed)
    bars = np.zeros(n, BAR.dtype)
    bars["close"] = np.cumsum(rng.normal(0, 1.2, n))
    bars["open"] = bars["close"] + rng.normal(0, 0.5, n).astype(np.float32)
    top = np.maximum(bars["open"], bars["close"])
    bottom = np.minimum(bars["open"], bars["close"])
    bars["high"] = top + rng.exponential(0.5, n)
    bars["low"] = bottom - rng.exponential(0.5, n)
    bars["sigma"] = np.where(rng.random(n) < 0.02, 0, rng.uniform(0.2, 2, n))
    bars["adx"] = rng.uniform(0, 80, n)
    bars["cusum"] = rng.uniform(0, 1.5, n)
    bars["flags"] |= np.where(rng.random(n) < 0.03, BarFlag.ROLL, 0).astype(np.uint32)
    bars["flags"] |= np.where(rng.random(n) < 0.03, BarFlag.NO_VOLUME, 0).astype(np.uint32)
    aux = rng.uniform(-1, 1, n).astype(np.float32)
    still = rng.random(n) < 0.02  # one price all through: a limit is touched, not crossed
    for name in ("open", "high", "low"):
        bars[name][still] = bars["close"][still]
    _touch_limits(bars, rng.random(n - 1) < 0.3)
    return bars, aux


def _touch_limits(bars: Array, where: Array) -> None:
    """Let bars stop exactly at the deep limit of the bar before: touched, not traded through."""
    close, distance = bars["close"][:-1], np.float32(DEEP) * bars["sigma"][:-1]
    after = bars[1:]
    below = where & (close - distance <= np.minimum(after["open"], after["close"]))
    above = where & (close + distance >= np.maximum(after["open"], after["close"]))
    after["low"][below] = (close - distance)[below]
    after["high"][above] = (close + distance)[above]


def rough_tape(params: Array, n: int, seed: int = 0, start: int = 0) -> Tape:
    """Return a `Tape` of `rough_bars` from global bar `start`."""
    bars, aux = rough_bars(n, seed)
    return Tape(start, bars, params, aux)


def rough_actions(steps: int, n: int, seed: int = 0) -> Array:
    """Return uniform actions, uint8[steps, n, 4]."""
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, size, (steps, n)) for size in BRANCHES.values()]
    return np.stack(drawn, -1).astype(np.uint8)
