"""Codes, structs and column names that host and kernels share; written here, nowhere else.

`opencl.layout` renders them as OpenCL C and asks the device's compiler for sizes and offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = np.float32
Array = npt.NDArray[Any]


class Direction(IntEnum):
    """Values of the direction branch."""

    SHORT = 0
    HOLD = 1
    LONG = 2
    FLAT = 3


class Order(IntEnum):
    """Values of the order branch."""

    MARKET = 0
    LIMIT = 1
    DEEP_LIMIT = 2


class End(IntEnum):
    """Why a step ended its episode. TERMINATED stops the bootstrap, TRUNCATED does not."""

    RUNNING = 0
    TERMINATED = 1  # ruin
    TRUNCATED = 2  # end of the window or of the episode length
    DEAD = 3  # a row after the end: no decision, no experience


class Fill(IntEnum):
    """Where a market order fills."""

    NEXT_OPEN = 0
    CLOSE = 1


class Formula(IntEnum):
    """Which reward is summed."""

    COMPOSITE = 0
    CALIBRATED = 1


class BarFlag(IntEnum):
    """Bits of `Bar.flags`."""

    ROLL = 1  # open of this bar is the first price of the next contract
    NO_VOLUME = 2  # nothing fills on this bar


# Branches of an action in their order everywhere, with their number of values.
BRANCHES = {"direction": 4, "magnitude": 3, "order": 3, "urgency": 3}
N_BRANCHES = len(BRANCHES)
N_ACTIONS = sum(BRANCHES.values())

# Returned unweighted by every step, in this order.
COMPONENTS = (
    "dsr",
    "pnl_z",
    "dd_penalty",
    "idle",
    "trend",
    "vol",
    "asym",
    "hold_rent",
    "tx_cost",
    "r_aux",
)
N_COMPONENTS = len(COMPONENTS)


@dataclass(frozen=True)
class Struct:
    """A C struct of 4-byte fields: (field, NumPy type, array length)."""

    name: str
    fields: tuple[tuple[str, type[np.generic], int], ...]

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The packed NumPy dtype; all fields are 4 bytes wide, so C adds no padding."""
        return np.dtype([(n, t, (k,)) if k > 1 else (n, t) for n, t, k in self.fields])

    def pack(self, **values: Any) -> npt.NDArray[np.void]:
        """Return one record, shape (); every field must be named, none invented."""
        names = {n for n, _, _ in self.fields}
        if names != values.keys():
            raise TypeError(f"{self.name}: {sorted(names ^ values.keys())} missing or unknown")
        record = np.zeros((), self.dtype)
        for name, value in values.items():
            record[name] = value
        return record


def floats(*names: str) -> tuple[tuple[str, type[np.generic], int], ...]:
    """Return float32 fields of these names."""
    return tuple((name, np.float32, 1) for name in names)


# State of one episode, 64 bytes; the first 12 floats are the original portfolio layout.
STATE = Struct(
    "EpisodeState",
    floats(
        "position",  # units
        "cash",  # currency, relative to the price base
        "portfolio_val",  # currency, equity at the last close
        "dsr_A",
        "dsr_B",
        "pnl_ema",  # currency
        "pnl_var",  # currency^2
        "peak_equity",  # currency
        "flat_counter",  # bars
        "prev_equity",  # currency
        "hold_time",  # bars
        "realized_pnl",  # currency, cumulative, net
        "entry_price",  # points above the base, average
        "trade_pnl",  # currency, realised part of this trade, net
        "aux_at_entry",  # [-1, 1]
        "dd_excess",  # currency, deepest since the last peak
    ),
)
PORTFOLIO_STRIDE = 12  # floats of the original layout

# One bar as kernels see it: prices are float32 points above the fold's base.
BAR = Struct(
    "Bar",
    (*floats("open", "high", "low", "close", "sigma", "adx", "cusum"), ("flags", np.uint32, 1)),
)

# Everything a step needs beside state, action and bars.
PARAMS = Struct(
    "MarketParams",
    (
        *floats(
            "base",  # points, close[train.start]; |p| in costs adds it back
            "mult",  # currency per point and unit
            "tick_size",
            "lot_size",
            "commission",
            "half_spread",
            "slippage",
            "tx_cost_multiplier",
            "max_position",
            "initial_capital",
            "ruin_level",
        ),
        ("magnitude", np.float32, 3),
        ("urgency", np.float32, 3),
        ("offset", np.float32, 3),  # sigmas by order; the first is unused
        *floats(
            "w_dsr",
            "w_pnl",
            "w_dd",
            "w_idle",
            "dd_threshold",
            "loss_aversion",
            "time_decay_rate",
            "dsr_eta",
            "idle_scale",
            "max_idle_penalty",
            "dsr_epsilon",
            "max_hold_penalty",
            "cusum_ref",
            "scale_beta",
        ),
        ("fill", np.int32, 1),
        ("formula", np.int32, 1),
    ),
)

# What one step reports beside the new state.
STEP = Struct(
    "StepResult",
    (
        *floats(*COMPONENTS),
        *floats(
            "reward",
            "gross",  # currency
            "fill_price",  # points above the base; close[b+1] when nothing filled
            "filled",  # units, signed
            "position",  # units held into close[b+1], before a ruin takes it
            "equity",  # currency at close[b+1]
            "trade_result",  # currency, net, of the trade this step's fill closed, else 0
        ),
        ("segment_complete", np.int32, 1),  # 1 when a trade closed, by fill or by ruin
        ("end", np.int32, 1),  # End
    ),
)

# What of all that a launch carries belongs to one of its policies.
PART = Struct(
    "Part",
    (
        ("weights", np.int32, 1),
        ("table", np.int32, 1),  # of bars
        ("bank", np.int32, 1),  # of task skills, or -1
        ("origin", np.int32, 1),  # bar that the table's rows count from
        ("steps", np.int32, 1),  # the last of them truncates
        ("base", np.float32, 1),  # points, of its bars' prices
    ),
)

# What a strategy adds up to over its episode (`backtest.market.totals`).
TOTALS = Struct(
    "StrategyTotals",
    (
        *floats(
            "net_pnl",  # currency, open positions at the mark
            "max_drawdown",  # currency, from the highest equity so far
            "costs",  # currency, in net_pnl already
            "turnover",  # units traded
            "square_pnl",  # currency^2, sum over bars
            "square_loss",  # currency^2, of the bars that lost
        ),
        ("bars", np.int32, 1),  # until the end
        ("exposed", np.int32, 1),  # bars with a position
        ("trades", np.int32, 1),  # closed
        ("wins", np.int32, 1),  # of them with a profit, net
        ("end", np.int32, 1),  # End
    ),
)

# The state vector (spec: agent). Slots that follow the portfolio; the rest is the bar's alone.
STATE_DIM = 128
PORTFOLIO_SLOTS = (*range(112, 121), *range(122, 126))
N_PORTFOLIO = len(PORTFOLIO_SLOTS)
BAR_SLOTS = tuple(i for i in range(STATE_DIM) if i not in PORTFOLIO_SLOTS)
AUX_SLOT = 121
