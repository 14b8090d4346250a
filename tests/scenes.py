"""Small markets for tests: parameters, bars and tapes with everything at a known value."""

import numpy as np

from backtest.config import Config
from backtest.market.layout import BAR, PARAMS, Direction, Fill, Formula, Order
from backtest.market.rough import rough_tape
from backtest.market.tape import Tape

THIRD, TWO_THIRDS, FULL = 0, 1, 2


def params(**changes):
    """Return MarketParams with the shipped reward, no costs and one unit worth one point."""
    reward = Config().reward.model_dump() | {"formula": Formula.CALIBRATED}
    values = {
        "base": 0.0,
        "mult": 1.0,
        "tick_size": 0.01,
        "lot_size": 0.0,
        "commission": 0.0,
        "half_spread": 0.0,
        "slippage": 0.0,
        "tx_cost_multiplier": 0.0,
        "max_position": 1.0,
        "initial_capital": 1000.0,
        "ruin_level": 0.0,
        "magnitude": (1 / 3, 2 / 3, 1.0),
        "urgency": (1 / 3, 2 / 3, 1.0),
        "offset": (0.0, 0.1, 0.5),
        "fill": Fill.CLOSE,
        **reward,
    }
    return PARAMS.pack(**values | changes)


def bars(close, open=None, high=None, low=None, **columns):
    """Return Bar records; open defaults to the close before, sigma to 1, adx 25, cusum 0.5."""
    close = np.asarray(close, float)
    records = np.zeros(len(close), BAR.dtype)
    records["close"] = close
    records["open"] = np.concatenate([close[:1], close[:-1]]) if open is None else open
    top = np.maximum(records["open"], close)
    bottom = np.minimum(records["open"], close)
    records["high"] = top if high is None else high
    records["low"] = bottom if low is None else low
    for name, value in ({"sigma": 1.0, "adx": 25.0, "cusum": 0.5} | columns).items():
        records[name] = value
    return records


def tape(records, p, start=0, aux=None):
    """Return a Tape over the records."""
    forecast = np.zeros(len(records), np.float32) if aux is None else np.asarray(aux, np.float32)
    return Tape(start, records, p, forecast)


def action(direction=Direction.HOLD, magnitude=FULL, order=Order.MARKET, urgency=FULL):
    """Return one action, int[4]."""
    return np.array([direction, magnitude, order, urgency])


def random_tape(n, seed=0, p=None, start=0):
    """Return rough bars: rolls, empty bars, zero sigma, prices through zero."""
    return rough_tape(params() if p is None else p, n, seed, start)
