"""The market that the benchmarks run: Gaussian bars, the shipped reward, every cost above zero."""

from __future__ import annotations

import numpy as np

from backtest.config import Config, Instrument, Reward
from backtest.market.layout import BAR, Formula
from backtest.market.tape import Tape, market_params

SIGMA, TICK, PRICE = 1.2, 0.25, 5000.0


def gaussian_tape(bars: int, formula: Formula = Formula.CALIBRATED, seed: int = 0) -> Tape:
    """Return minute bars of an index future, one contract on 100,000 of capital."""
    rng = np.random.default_rng(seed)
    records = np.zeros(bars, BAR.dtype)
    close = TICK * np.round(np.cumsum(rng.normal(0, SIGMA, bars)) / TICK)
    records["close"] = close
    records["open"] = np.concatenate([[0.0], close[:-1]])
    spread = TICK * np.round(rng.exponential(0.5, (2, bars)) / TICK)
    records["high"] = np.maximum(records["open"], close) + spread[0]
    records["low"] = np.minimum(records["open"], close) - spread[1]
    records["sigma"] = SIGMA
    records["adx"] = rng.uniform(5, 60, bars)
    records["cusum"] = rng.exponential(0.2, bars)
    instrument = Instrument(
        point_value=50.0, tick_size=TICK, lot_size=0.0, commission=2.0, half_spread=0.125
    )
    reward = Reward.model_validate({"formula": formula.name.lower()})
    params = market_params(Config(reward=reward), instrument, PRICE)
    return Tape(0, records, params, rng.uniform(-1, 1, bars).astype(np.float32))
