"""Controls: markets whose edge is known, to which the learner's answer is known beforehand.

positive: AR(1) differences, an edge that must be found. negative: a martingale, where nothing may
be found. leak: a feature that holds the next difference must be exploited almost fully.
shuffled: the same feature with its rows shuffled must be worth nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from backtest.config import Config, Instrument, Synthetic, parse
from backtest.evaluation.intervals import Interval, mean_interval
from backtest.features.table import FeatureTable
from backtest.market.layout import Array
from backtest.splits import Fold, WalkForward

Kind = Literal["positive", "negative", "leak", "shuffled"]
KINDS: tuple[Kind, ...] = ("positive", "negative", "leak", "shuffled")
WARMUP = 605  # bars
ORACLE_SHARE = 0.9  # of the best net PnL, to be reached with the leak
LEAK_LIMIT = 10.0  # sigmas, clip of the leaked difference


@dataclass(frozen=True)
class Size:
    """How large a control is."""

    phi: float = 0.3
    train: int = 20_000  # bars
    validation: int = 4_000
    test: int = 5_000
    updates: int = 2_000
    epochs: int = 4


FULL = Size(phi=0.15)
QUICK = Size()


@dataclass(frozen=True)
class Outcome:
    """One seed of one control on its test window."""

    kind: Kind
    seed: int
    sharpe: Interval  # of daily returns, stationary bootstrap
    pnl_per_bar: float  # currency, net
    gross_per_bar: float  # currency, before costs
    oracle_share: float  # net PnL over the best that was possible


@dataclass(frozen=True)
class Verdict:
    """All seeds of one control."""

    kind: Kind
    pnl_per_bar: Interval  # t interval over seeds
    gross_per_bar: Interval  # the same before costs
    oracle_share: float  # lowest of all seeds
    passed: bool
    text: str


def instrument(kind: Kind, size: Size, seed: int) -> Instrument:
    """Return the planted market of a control: hourly bars around the clock at 5,000 points."""
    bars = WARMUP + size.train + size.validation + size.test
    phi = size.phi if kind == "positive" else 0.0
    return Instrument(
        source="synthetic",
        synthetic=Synthetic(bars=bars, seed=seed, phi=phi, sigma=1.2, price=5000.0),
        bar="1h",
        tick_size=0.25,
        tx_cost_multiplier=1e-5,
    )


def configuration(kind: Kind, size: Size) -> Config:
    """Return the shipped defaults at a control's budget; the leak learns direction only."""
    branches = ["direction"] if kind in ("leak", "shuffled") else ["direction", "magnitude"]
    tables: dict[str, Any] = {
        "learner": {"updates": size.updates, "epochs": size.epochs, "branches": branches}
    }
    return parse(tables, where="controls")


def fold(size: Size) -> Fold:
    """Return the one fold of a control."""
    plan = WalkForward(size.train, size.validation, size.test, warmup=WARMUP)
    return plan.folds(WARMUP + size.train + size.validation + size.test)[0]


def planted(
    kind: Kind, table: FeatureTable, state: Array, first: int, tick: float, seed: int
) -> Array:
    """Return bar states with feature 0 replaced by the next difference over sigma (a leak).

    Args:
        kind: leak or shuffled change the state, the others return it.
        table: must reach one bar past the states.
        state: float32[n, 115] of bars [first, first + n).
        first: bar of row 0.
        tick: least sigma, points.
        seed: of the shuffle.
    """
    if kind not in ("leak", "shuffled"):
        return state
    rows = table.slice(first, min(first + len(state) + 1, table.stop))
    ahead = np.zeros(len(state))
    known = len(rows) - 1
    scale = np.maximum(rows.sigma[:known], tick)
    ahead[:known] = np.clip(np.diff(rows.close) / scale, -LEAK_LIMIT, LEAK_LIMIT)
    if kind == "shuffled":
        ahead = np.random.Generator(np.random.Philox(seed)).permutation(ahead)
    changed = state.copy()
    changed[:, 0] = ahead
    return changed


def judge(kind: Kind, outcomes: Sequence[Outcome], confidence: float = 0.95) -> Verdict:
    """Compare the outcomes of all seeds with what the control demands, by t intervals over seeds.

    positive and leak: the mean net PnL a bar lies above 0, and with the leak every seed earns more
    than `ORACLE_SHARE` of the best. negative: the mean PnL before costs covers 0, and net of costs
    it does not lie above 0 (whoever trades a martingale pays the costs, so net of them the interval
    need not cover 0). shuffled: neither lies above 0.
    """
    net = mean_interval(np.array([o.pnl_per_bar for o in outcomes]), confidence=confidence)
    gross = mean_interval(np.array([o.gross_per_bar for o in outcomes]), confidence=confidence)
    share = min(o.oracle_share for o in outcomes)
    above = net.low is not None and net.low > 0
    if kind == "leak":
        passed = above and share > ORACLE_SHARE
        demand = f"net above 0 and > {ORACLE_SHARE:.0%} of the best"
    elif kind == "positive":
        passed, demand = above, "net above 0"
    elif kind == "negative":
        covers = gross.low is None or (gross.low <= 0 <= (gross.high or 0.0))
        passed, demand = covers and not above, "gross covers 0, net not above 0"
    else:
        found = gross.low is not None and gross.low > 0
        passed, demand = not (found or above), "neither above 0"
    text = (
        f"{kind}: PnL a bar net {shown(net)}, gross {shown(gross)} over {len(outcomes)} seeds, at "
        f"least {share:.1%} of the best; wanted {demand}: {'holds' if passed else 'FAILS'}"
    )
    return Verdict(kind, net, gross, share, passed, text)


def shown(found: Interval) -> str:
    """Return an interval in words."""
    if found.value is None:
        return "undefined"
    bounds = "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"
    return f"{found.value:.4f}{bounds}"
