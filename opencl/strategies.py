"""A vector backtester: target positions of many strategies in, figures of each out.

All costs of the instrument are charged in the market that policies are trained in; the arithmetic
is the device's float32. `opencl.target_run` keeps a float64 account, trades and intervals of few
strategies, as the walk-forward does of policies.

    bars = Bars.of_prices("ES", time, open_, close)          # or backtest.data.bars.read_bars(path)
    config = parse({"instruments": {"ES": {"point_value": 50.0, "commission": 2.0}}})
    targets = Targets.of_array(positions)                    # [bars - 1, strategies], units
    found = score(config, bars, targets, select("auto"))
    best = np.nanargmax(found["sharpe"])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from backtest.config import Config
from backtest.data.bars import Bars
from backtest.data.session import sessions_per_year
from backtest.data.targets import TargetFile, Targets
from backtest.errors import DeviceError
from backtest.evaluation import columns
from backtest.market.layout import TOTALS, Array, End
from backtest.market.prices import price_tape
from opencl.curve import session_figures
from opencl.devices import Device
from opencl.simulate import GROUP, DeviceTape, padded, simulator

BUDGET_SHARE = 8  # of a device's memory, one part is for a block of strategies

# What is known of every strategy, with its unit; names as in `backtest.evaluation.metrics`.
FIGURES: dict[str, str] = {
    "final_equity": "currency",
    "net_return": "fraction of the initial capital",
    "cagr": "fraction a year",
    "volatility": "fraction a year, of daily returns",
    "sharpe": "of daily returns, a year",
    "sortino": "of daily returns, a year",
    "max_drawdown": "fraction of the peak",
    "n_trades": "closed",
    "win_rate": "fraction of closed trades",
    "exposure": "fraction of bars",
    "turnover": "units",
    "costs": "currency",
    "ruined": "0 or 1: the account reached the ruin level and stopped",
}


@dataclass(frozen=True)
class Scores(Mapping[str, Array]):
    """Figures of many strategies.

    Attributes:
        names: of the strategies.
        figures: float64[n] by name of `FIGURES`; NaN where undefined.
        blocks: launches that it took.
        planned: bytes that a block was planned to take on the device.
    """

    names: tuple[str, ...]
    figures: Mapping[str, Array]
    blocks: int
    planned: int

    def __getitem__(self, name: str) -> Array:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


def score(
    config: Config,
    bars: Bars,
    targets: TargetFile | Targets,
    device: Device,
    budget: int | None = None,
) -> Scores:
    """Trade targets with market orders, block by block, and return the figures of each strategy.

    Memory does not grow with the number of strategies: a block holds as many as fit the budget,
    and a file is read block by block.

    Args:
        config: its settings of this instrument hold the costs; market and reward the rest.
        bars: the instrument's bars.
        targets: what every strategy wants, [steps, n] units.
        device: runs the kernels.
        budget: bytes for one block on the device; None: an eighth of the device's memory.

    Raises:
        DataError: names the row of the file, or the bar and strategy, that cannot be right.
        DeviceError: not even the smallest block fits.
    """
    first, steps = targets.first_bar, targets.steps
    tape, _ = price_tape(config, bars, first, steps)
    session = bars.session[first + 1 : first + 1 + steps]
    ends = np.append(np.flatnonzero(np.diff(session)), steps - 1)
    width, planned = block(device, len(targets.names), steps, len(ends), budget)
    rows, market = DeviceTape(device, tape), simulator(device)
    settings, capital = config.instrument_settings(bars.instrument), config.market.initial_capital
    year = sessions_per_year(settings.calendar)
    days = int(session[-1]) - int(session[0]) + 1
    parts = []
    for at in range(0, len(targets.names), width):
        part = targets.read(targets.names[at : at + width])
        part.check(settings.max_position)
        count = len(part.names)
        made = market.backtest(rows, np.full(count, first), part.position, equity=True)
        assert made.equity_held is not None
        closing, drawdown = session_figures(made.equity_held, ends, capital)
        parts.append(
            _figures(made.totals, closing[:, :count], drawdown[:count], steps, capital, year, days)
        )
    figures = {name: np.concatenate([part[name] for part in parts]) for name in FIGURES}
    return Scores(tuple(targets.names), figures, len(parts), planned)


def block(
    device: Device, count: int, steps: int, sessions: int, budget: int | None = None
) -> tuple[int, int]:
    """Return how many of `count` strategies make a block, and the bytes that it takes.

    A strategy takes a target and an equity a step, an equity a session, and its totals.

    Raises:
        DeviceError: one work-group does not fit.
    """
    budget = device.global_memory // BUDGET_SHARE if budget is None else budget
    each = 4 * (2 * steps + sessions + 2) + TOTALS.dtype.itemsize
    largest = int(device.handle.max_mem_alloc_size) // (4 * steps)
    width = min(padded(count), min(budget // each, largest) // GROUP * GROUP)
    if width < GROUP:
        raise DeviceError(
            f"{device.name}: {GROUP} strategies of {steps:,} steps take {GROUP * each:,} bytes, "
            f"the budget is {budget:,} and one buffer holds {4 * steps * largest:,}; use fewer bars"
        )
    return width, width * each


def _figures(
    totals: Array,
    closing: Array,
    drawdown: Array,
    steps: int,
    capital: float,
    year: float,
    days: int,
) -> dict[str, Array]:
    """Return `FIGURES` of one block.

    Args:
        totals: `StrategyTotals` records [n].
        closing: float32[sessions, n], equity at every session's end, currency.
        drawdown: float32[n], fraction.
        steps: of all strategies.
        capital: currency.
        year: sessions a year.
        days: calendar days, first and last session included.
    """
    returns = np.diff(closing.astype(np.float64), axis=0, prepend=capital) / capital
    trades = totals["trades"].astype(np.float64)
    net = closing[-1].astype(np.float64) / capital - 1
    found = {
        "final_equity": closing[-1],
        "net_return": net,
        "cagr": columns.cagr(net, days),
        "volatility": columns.volatility(returns, year),
        "sharpe": columns.sharpe(returns, year),
        "sortino": columns.sortino(returns, year),
        "max_drawdown": drawdown,
        "n_trades": trades,
        "win_rate": totals["wins"] / np.where(trades > 0, trades, np.nan),
        # of all bars: after a ruin there is no position
        "exposure": totals["exposed"] / steps,
        "turnover": totals["turnover"],
        "costs": totals["costs"],
        "ruined": totals["end"] == End.TERMINATED,
    }
    return {name: np.asarray(values, np.float64) for name, values in found.items()}
