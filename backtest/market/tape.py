"""What a fold's episodes may read: its bars as records, and the parameters of its market.

A tape is cut before it reaches a device: rows at or after its stop do not exist there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest.config import Config, Instrument
from backtest.market.layout import PARAMS, Array, Fill, Formula


@dataclass(frozen=True)
class Tape:
    """Bars [start, stop) of the global axis as `Bar` records, with base and parameters.

    Attributes:
        start: global index of the first row.
        bars: `Bar` records [n], prices in points above the base.
        params: one `MarketParams` record, shape ().
        aux: float32[n], direction forecast in [-1, 1]; 0 without an aux head.
    """

    start: int
    bars: Array
    params: Array
    aux: Array

    @property
    def stop(self) -> int:
        """The first bar that is not on the tape."""
        return self.start + len(self.bars)

    def at(self, bar: Array) -> Array:
        """Return the records of global bar indices, any shape."""
        records: Array = self.bars[np.asarray(bar) - self.start]
        return records


def market_params(config: Config, instrument: Instrument, base: float) -> Array:
    """Return the `MarketParams` record of one instrument, shape ()."""
    reward, market = config.reward, config.market
    return PARAMS.pack(
        base=base,
        mult=instrument.point_value,
        tick_size=instrument.tick_size,
        lot_size=instrument.lot_size,
        commission=instrument.commission,
        half_spread=instrument.half_spread,
        slippage=instrument.slippage,
        tx_cost_multiplier=instrument.tx_cost_multiplier,
        max_position=instrument.max_position,
        initial_capital=market.initial_capital,
        ruin_level=market.ruin_level,
        magnitude=market.magnitudes,
        urgency=market.urgencies,
        offset=(0.0, *instrument.limit_offsets),
        fill=Fill[market.fill.upper()],
        **reward.model_dump() | {"formula": Formula[reward.formula.upper()]},
    )
