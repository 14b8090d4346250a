"""A tape of prices alone, for decisions that were made elsewhere."""

from __future__ import annotations

import numpy as np

from backtest.config import Config
from backtest.data.bars import Bars
from backtest.features.names import MARKET_DIM
from backtest.features.table import FeatureTable
from backtest.market.records import bar_records
from backtest.market.tape import Tape, market_params


def price_tape(config: Config, bars: Bars, first: int, steps: int) -> tuple[Tape, FeatureTable]:
    """Return the bars that `steps` decisions from bar `first` on are traded at: tape and table.

    The price base is close[first]; no bar has a forecast.
    """
    table = price_table(bars).slice(first, first + steps + 1)
    base = float(table.close[0])
    params = market_params(config, config.instrument_settings(bars.instrument), base)
    records = bar_records(table, base, bars.volume_known)
    return Tape(first, records, params, np.zeros(len(table), np.float32)), table


def price_table(bars: Bars) -> FeatureTable:
    """Return the bars as a feature table whose features are all zero.

    Market orders at given positions read none: only rewards and limit prices would.
    """
    n = len(bars)
    nothing = np.broadcast_to(np.zeros((1, MARKET_DIM)), (n, MARKET_DIM))
    return FeatureTable.of_bars(
        bars,
        sigma=np.zeros(n),
        cusum_event=np.zeros(n, np.int8),
        market=nothing,
        slow=nothing,
    )
