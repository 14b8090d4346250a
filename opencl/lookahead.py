"""Future perturbation of the whole chain: what a fold trains on, chooses by and trades.

Bars from some place on are changed, features are computed again, and everything that may not
depend on them is compared exactly: train and validation rows, scaler, base, test decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backtest import rng
from backtest.agent.foundation import Foundation, lay_foundation, needed
from backtest.agent.kinds import Weights
from backtest.agent.random_policy import random_policy, random_scenario
from backtest.config import Config, Network
from backtest.data.bars import Bars
from backtest.experiment import FoldMarket
from backtest.features.table import FeatureTable, compute
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
    foundation = lay(market, table)
    ends = {"train": market.learning.stop, "validation": fold.validation.stop}
    if market.collection != market.learning:
        ends["collected"] = market.collection.stop
    for name, cut in ends.items():
        other = compute(perturbed(bars, cut), config.features.adx_seed)
        again = FoldMarket.fit(config, settings, fold, other)
        compare(f"{name}: scaler", cut, market.scaler.scale, again.scaler.scale)
        compare(f"{name}: price base", cut, np.array(market.base), np.array(again.base))
        # what stage 0 fits ends with the train rows; behind them it forecasts
        refitted = lay(again, other) if name == "train" else foundation
        if foundation is not None and refitted is not None and name == "train":
            compare(f"{name}: foundation", cut, foundation.fitted, refitted.fitted)
        tape, state = getattr(market, name)(table, foundation)
        tape2, state2 = getattr(again, name)(other, refitted)
        compare(f"{name}: bars", cut, records(tape.bars), records(tape2.bars))
        compare(f"{name}: forecasts", cut, tape.aux, tape2.aux)
        compare(f"{name}: states", cut, state, state2)
    middle = (fold.test.start + fold.test.stop) // 2
    other = compute(perturbed(bars, middle), config.features.adx_seed)
    key = rng.key(0, instrument, fold.key)
    played = []
    for source in (table, other):
        tape, state = market.test(source, foundation)
        rollout = Rollout(device, tape, state, shape(config))
        start = np.array([[tape.start]])
        played.append(
            greedy(
                rollout,
                [stand_in(config.network)],
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


def lay(market: FoldMarket, table: FeatureTable) -> Foundation | None:
    """Fit on train rows what stage 0 fits, for seed 0; None when nothing stands on it."""
    if not needed(market.config):
        return None
    train = market.learning
    _, state = market.train(table)
    return lay_foundation(
        market.config,
        table.slice(train.start, train.stop),
        state,
        tick_size=market.instrument.tick_size,
        seed=0,
        stream=rng.hash32(market.fold.key),
    )


def stand_in(network: Network) -> Weights:
    """Return a policy of random weights, the forecast's way around the network among them."""
    if network.kind == "scenario":
        return random_scenario(network, alpha=1.0)
    return random_policy(network.hidden, network.atoms, alpha=1.0)


def records(array: Array) -> Array:
    """Return structured records as rows of their bytes, uint8[n, size]."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return flat.view(np.uint8).reshape(len(array), -1)
