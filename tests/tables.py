"""Small feature tables from prices alone, and tapes over them as a fold would cut them."""

import numpy as np

from backtest.config import Config
from backtest.features.names import ADX, CUSUM, FEATURES, MARKET_DIM
from backtest.features.table import FeatureTable
from backtest.market.records import bar_records
from backtest.market.tape import Tape, market_params


def table_of(close, open=None, first_bar=0, **columns):
    """Return a FeatureTable; open defaults to the close before, sigma to 1, volume to 1."""
    close = np.asarray(close, float)
    n = len(close)
    open_ = np.concatenate([close[:1], close[:-1]]) if open is None else np.asarray(open, float)
    market = np.zeros((n, MARKET_DIM))
    market[:, ADX], market[:, CUSUM] = 25.0, 0.5
    for name in set(columns) & set(FEATURES):
        market[:, FEATURES.index(name)] = columns.pop(name)
    values = {
        "high": np.maximum(open_, close),
        "low": np.minimum(open_, close),
        "volume": np.ones(n),
        "sigma": np.ones(n),
        "roll": np.zeros(n, bool),
    } | columns
    return FeatureTable(
        first_bar=first_bar,
        time=np.arange(first_bar, first_bar + n, dtype=np.int64) * 10**9,
        open=open_,
        close=close,
        cusum_event=np.zeros(n, np.int8),
        market=market,
        slow=np.zeros((n, MARKET_DIM)),
        **{name: np.broadcast_to(value, n).copy() for name, value in values.items()},
    )


def rough_table(n, seed=0, base=0.0, step=1.2):
    """Return bars that touch every rule: rolls, bars without volume, sigma of zero."""
    rng = np.random.default_rng(seed)
    close = base + np.cumsum(rng.normal(0, step, n))
    open_ = close + rng.normal(0, step / 2, n)
    return table_of(
        close,
        open_,
        high=np.maximum(open_, close) + rng.exponential(step / 2, n),
        low=np.minimum(open_, close) - rng.exponential(step / 2, n),
        volume=(rng.random(n) > 0.03).astype(float),
        sigma=np.where(rng.random(n) < 0.02, 0.0, rng.uniform(0.2, 2, n) * step),
        roll=rng.random(n) < 0.03,
        adx=rng.uniform(0, 80, n),
        cusum=rng.uniform(0, 1.5, n),
    )


def tape_of(table, instrument, market, base=None):
    """Return the tape of a whole table; base defaults to its first close."""
    base = float(table.close[0]) if base is None else base
    params = market_params(Config(market=market), instrument, base)
    records = bar_records(table, base, table.volume_known)
    return Tape(table.first_bar, records, params, np.zeros(len(table), np.float32))
