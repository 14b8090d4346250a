"""What a training run says while it runs: one line an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from backtest.agent.plan import Progress

Log = Callable[[str, float], None]  # a line for people, the fraction of the training that is done


def progress(log: Log, seed: int) -> Progress:
    """Return a reporter that writes one line an epoch."""
    clock = time.perf_counter()

    def report(done: int, total: int, row: Mapping[str, Any] | None) -> None:
        if row is None:
            return
        seconds = time.perf_counter() - clock
        left = seconds / done * (total - done) if done else float("nan")
        log(
            f"seed {seed} epoch {row['epoch']}: loss {row['loss']:.3f}, validation Sharpe "
            f"{shown(row['validation_sharpe'])}, {row['steps_per_s']:,.0f} steps/s, "
            f"{row['updates_per_s']:,.0f} updates/s, {left:.0f} s left",
            done / total,
        )

    return report


def shown(value: float | None) -> str:
    """Return a figure with two digits, or that there is none."""
    return "undefined" if value is None else f"{value:.2f}"
