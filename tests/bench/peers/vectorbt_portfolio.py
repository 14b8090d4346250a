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
from opencl.devices import Device
from opencl.simulate import simulator
from tests.bench.rows import TIMES, Row, alternating
from tests.bench.scene import gaussian_tape

BARS, PEER_STRATEGIES, QUICK_STRATEGIES = 1000, 1024, 256
GPU_STRATEGIES, CPU_STRATEGIES = 65_536, 4096
FIXED, PROPORTIONAL = 0.5, 1e-4  # currency an order of one unit, share of its notional value
TOLERANCE = 1e-5  # of the equity: ours is float32, theirs float64; 5.5e-6 was seen


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure vectorbt, and the device beside it by turns."""
    few = QUICK_STRATEGIES if quick else PEER_STRATEGIES
    many = few if quick else GPU_STRATEGIES if device.kind == "gpu" else CPU_STRATEGIES
    tape = priced_tape()
    targets = unit_moves(BARS, many)
    market, start = simulator(device), np.zeros(many, np.int64)
    peer = Orders(tape, targets[:, :few])
    check(
        peer.simulate().value().to_numpy(),
        market.backtest(tape, start[:few], targets[:, :few], equity=True).equity,
    )
    runs, curves, metrics, ours = alternating(
        peer.simulate,
        lambda: peer.simulate().value(),
        lambda: figures(peer.simulate()),
        lambda: market.backtest(tape, start, targets, equity=True).equity,
    )
    rate, unit = BARS * many / ours, "bars x strategies/s"
    detail = f"{rate:,.0f} {unit} on {device.name}, targets up and equity back"
    rows = []
    for what, seconds in (
        ("without the equity curve", runs),
        ("with the equity curve", curves),
        ("with equity, return, drawdown and Sharpe", metrics),
    ):
        theirs = BARS * few / seconds
        name = f"vectorbt {vectorbt.__version__} {what}"
        rows.append(Row(name, theirs, unit, f"{few:,} strategies, {BARS:,} bars, one CPU core"))
        against = f"batch evaluation, against vectorbt {what}"
        goal = f"vectorbt_{device.kind}" if seconds is curves else ""
        rows.append(Row(against, rate / theirs, TIMES, detail, goal=goal))
    return rows


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


def check(theirs: Array, ours: Array) -> None:
    """Compare equity curves, [steps, strategies]."""
    gap = np.max(np.abs(theirs - ours) / theirs)
    if gap > TOLERANCE:
        raise AssertionError(f"equity differs from vectorbt's by {gap:.2g} of it; not timed")
