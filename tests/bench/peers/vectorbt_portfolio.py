"""Batch evaluation of target positions beside vectorbt's `Portfolio.from_orders`.

The same strategies on the same bars: targets in units, filled at the next open, a fixed and a
proportional cost on every fill. A move is one unit at most, so that a cost by unit (ours) and a
cost by order (vectorbt's `fixed_fees`) are the same. vectorbt runs on the CPU wherever we run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import vectorbt
from vectorbt.portfolio.enums import Direction, SizeType

from backtest.market.layout import Array
from backtest.market.tape import Tape
from opencl.buffers import upload
from opencl.devices import Device
from opencl.simulate import Backtest, DeviceTape, simulator
from tests.bench.rows import TIMES, Row, alternating
from tests.bench.scene import gaussian_tape

BARS, PEER_STRATEGIES, QUICK_STRATEGIES = 1000, 1024, 256
REPEATS = 3  # vectorbt takes its time
GPU_STRATEGIES, CPU_STRATEGIES = 65_536, 4096
UNIT = "bars x strategies/s"
FIXED, PROPORTIONAL = 0.5, 1e-4  # currency an order of one unit, share of its notional value
TOLERANCE = 1e-5  # of the equity: ours is float32, theirs float64; 5.5e-6 was seen


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure vectorbt, and the device beside it by turns."""
    few = QUICK_STRATEGIES if quick else PEER_STRATEGIES
    many = few if quick else GPU_STRATEGIES if device.kind == "gpu" else CPU_STRATEGIES
    tape, targets = priced_tape(), unit_moves(BARS, many)
    market, start = simulator(device), np.zeros(many, np.int64)
    rows, held = DeviceTape(device, tape), upload(device, targets)
    peer = Orders(tape, targets[:, :few])
    check(peer.simulate(), market.backtest(tape, start[:few], targets[:, :few], equity=True))
    runs, curves, metrics, memory, carried, totals = alternating(
        peer.simulate,
        lambda: peer.simulate().value(),
        lambda: figures(peer.simulate()),
        lambda: market.backtest(rows, start, held, equity=True).totals,
        lambda: market.backtest(tape, start, targets, equity=True).equity,
        lambda: market.backtest(tape, start, targets).totals,
        repeats=REPEATS,
    )
    theirs = {
        "orders alone": runs,
        "orders and equity": curves,
        "orders, equity, return, drawdown and Sharpe": metrics,
    }
    ours = (
        ("targets up, equity back", carried, "orders and equity", "cpu"),
        ("targets and equity in the device's memory", memory, "orders and equity", "gpu"),
        ("targets up, totals back", totals, "orders alone", ""),
        ("targets up, totals back", totals, "orders, equity, return, drawdown and Sharpe", ""),
    )
    rates = {what: BARS * few / seconds for what, seconds in theirs.items()}
    version, how = vectorbt.__version__, f"{few:,} strategies, {BARS:,} bars, one CPU core"
    made = [Row(f"vectorbt {version}, {what}", rate, UNIT, how) for what, rate in rates.items()]
    for what, seconds, beside, goal in ours:
        rate = BARS * many / seconds
        made.append(
            Row(
                f"batch evaluation, {what}, against vectorbt's {beside}",
                rate / rates[beside],
                TIMES,
                f"{rate:,.0f} {UNIT} by wall on {device.name}, {many:,} strategies; by turns",
                goal=f"vectorbt_{goal}" if goal == device.kind else "",
            )
        )
    return made


class Orders:
    """The orders of some strategies as vectorbt takes them, made before the clock starts."""

    def __init__(self, tape: Tape, targets: Array) -> None:
        steps = len(targets)
        bars, base = tape.bars[1 : steps + 1], float(tape.params["base"])
        self.close = (bars["close"].astype(np.float64) + base)[:, None]
        self.given: dict[str, Any] = {
            "size": targets.astype(np.float64),
            "price": (bars["open"].astype(np.float64) + base)[:, None],
            "init_cash": float(tape.params["initial_capital"]),
        }

    def simulate(self) -> Any:
        """Return the portfolio."""
        return vectorbt.Portfolio.from_orders(
            self.close,
            size_type=SizeType.TargetAmount,
            direction=Direction.Both,
            fees=PROPORTIONAL,
            fixed_fees=FIXED,
            freq="1min",
            **self.given,
        )


def figures(portfolio: Any) -> tuple[Any, ...]:
    """Return the equity and three metrics of each strategy."""
    return (
        portfolio.value(),
        portfolio.total_return(),
        portfolio.max_drawdown(),
        portfolio.sharpe_ratio(),
    )


def priced_tape() -> Tape:
    """Return bars of an instrument whose costs vectorbt knows, too."""
    tape = gaussian_tape(BARS + 2)
    params = tape.params.copy()
    for name, value in {
        "mult": 1,
        "half_spread": 0,
        "slippage": 0,
        "commission": FIXED,
        "tx_cost_multiplier": PROPORTIONAL,
    }.items():
        params[name] = value
    return replace(tape, params=params)


def unit_moves(steps: int, strategies: int) -> Array:
    """Return positions -1, 0, 1 that change by one unit at most, float32[steps, strategies]."""
    moves = np.random.default_rng(0).integers(-1, 2, (steps, strategies)).astype(np.int8)
    positions = np.empty((steps, strategies), np.float32)
    held = np.zeros(strategies, np.int8)
    for t, move in enumerate(moves):
        held = np.clip(held + move, -1, 1)
        positions[t] = held
    return positions


def check(theirs: Any, ours: Backtest) -> None:
    """Compare equity curves, [steps, strategies], and net profits."""
    equity = theirs.value().to_numpy()
    gap = np.max(np.abs(equity - ours.equity) / equity)
    profit = np.abs(theirs.total_profit().to_numpy() - ours.totals["net_pnl"]) / equity[-1]
    if max(gap, profit.max()) > TOLERANCE:
        raise AssertionError(f"equity differs from vectorbt's by {gap:.2g} of it; not timed")
