"""Gaussian bars on which the skill of every scripted policy is known exactly."""

from __future__ import annotations

import numpy as np

from backtest import rng
from backtest.config import Config, Instrument, Market
from backtest.market.layout import BAR, Array
from backtest.market.tape import Tape, market_params

SIGMA = 1.2  # points a bar
PRICE = 5000.0  # points, first close of every episode
ADX, CUSUM = 25.0, 0.5
INSTRUMENT = Instrument(tick_size=0.25, tx_cost_multiplier=1e-5)
MARKET = Market(fill="close", initial_capital=100_000.0)
STREAM = ("synthetic", "audit")  # instrument and fold key of its random numbers


def synthetic_params(config: Config) -> Array:
    """Return the `MarketParams` record of the synthetic market under the config's reward."""
    return market_params(config.model_copy(update={"market": MARKET}), INSTRUMENT, PRICE)


def gaussian_tape(params: Array, steps: int, key: Array, episode: Array) -> tuple[Tape, Array]:
    """Return bars of their own for every episode, and its first bar, int[n].

    An episode is a pure function of key and id: a longer one starts with the bars of a shorter one.

    Args:
        params: see `synthetic_params`.
        steps: length of the episodes.
        key: uint32[2] of `rng.key`.
        episode: int[n], ids of the episodes in the streams of stage SYNTHETIC.
    """
    from scipy.special import ndtri

    ids, t = np.asarray(episode)[:, None], np.arange(steps)[None, :]
    u = rng.uniform(key, rng.Stage.SYNTHETIC, 0, ids, t, 0)
    # u is a multiple of 2^-24 in [0, 1); half a step more keeps it off the infinite ends
    close = np.zeros((len(ids), steps + 1))
    np.cumsum(SIGMA * ndtri(u + 2.0**-25), axis=1, out=close[:, 1:])
    bars = np.zeros(close.shape, BAR.dtype)
    bars["close"] = close
    bars["open"][:, 0] = bars["close"][:, 0]
    bars["open"][:, 1:] = bars["close"][:, :-1]
    bars["high"] = np.maximum(bars["open"], bars["close"])
    bars["low"] = np.minimum(bars["open"], bars["close"])
    bars["sigma"], bars["adx"], bars["cusum"] = SIGMA, ADX, CUSUM
    start = np.arange(len(ids)) * (steps + 1)
    return Tape(0, bars.reshape(-1), params, np.zeros(bars.size, np.float32)), start
