"""Future perturbation of the whole chain: what a fold trains on, chooses by and trades.

Bars from some place on are changed, features are computed again, and everything that may not
depend on them is compared exactly: train and validation rows, scaler, base, test decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest import rng
from backtest.agent.random_policy import random_policy
from backtest.config import Config
from backtest.data.bars import Bars
from backtest.experiment import FoldMarket
from backtest.features.table import compute
from backtest.lookahead import different, perturbed
from backtest.market.layout import Array
from backtest.splits import Fold
from opencl.collector import greedy
from opencl.devices import Device
from opencl.rollout import Rollout
from opencl.training import shape


@dataclass(frozen=True)
class Comparison:
    """One thing that may not see bars at or after `cut`."""

    fold: str
    what: str
    cut: int
    compared: int  # values
    different: int

    @property
    def ok(self) -> bool:
        """Nothing differs."""
        return self.different == 0


def fold_comparisons(
    config: Config, instrument: str, bars: Bars, fold: Fold, device: Device
) -> list[Comparison]:
    """Compare one fold under changed futures.

    A policy of random weights stands for a trained one: what it decides at a bar is a function of
    what the bar's state and the account hold, whatever the weights.
    """
    settings = config.instrument_settings(instrument)
    rows: list[Comparison] = []

    def compare(what: str, cut: int, a: Array, b: Array) -> None:
        count = int(different(np.atleast_1d(a), np.atleast_1d(b)).sum())
        rows.append(Comparison(fold.key, what, cut, int(np.size(a)), count))

    table = compute(bars, config.features.adx_seed)
    market = FoldMarket.fit(config, settings, fold, table)
    for name, cut in (("train", fold.train.stop), ("validation", fold.validation.stop)):
        other = compute(perturbed(bars, cut), config.features.adx_seed)
        again = FoldMarket.fit(config, settings, fold, other)
        compare(f"{name}: scaler", cut, market.scaler.scale, again.scaler.scale)
        compare(f"{name}: price base", cut, np.array(market.base), np.array(again.base))
        tape, state = getattr(market, name)(table)
        tape2, state2 = getattr(again, name)(other)
        compare(f"{name}: bars", cut, records(tape.bars), records(tape2.bars))
        compare(f"{name}: states", cut, state, state2)
    middle = (fold.test.start + fold.test.stop) // 2
    other = compute(perturbed(bars, middle), config.features.adx_seed)
    key = rng.key(0, instrument, fold.key)
    played = []
    for source in (table, other):
        tape, state = market.test(source)
        rollout = Rollout(device, tape, state, shape(config))
        start = np.array([[tape.start]])
        played.append(
            greedy(
                rollout,
                [random_policy(config.network.hidden, config.network.atoms, 0)],
                start,
                len(fold.test),
                key[None],
                trace=True,
            )
        )
    a, b = played
    assert a.trace is not None
    assert b.trace is not None
    decided = middle - (fold.test.start - 1)  # decisions at bars < middle
    compare("test: decisions", middle, a.action[:decided], b.action[:decided])
    compare("test: steps", middle, records(a.trace[: decided - 1]), records(b.trace[: decided - 1]))
    return rows


def records(array: Array) -> Array:
    """Return structured records as rows of their bytes, uint8[n, size]."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return flat.view(np.uint8).reshape(len(array), -1)
