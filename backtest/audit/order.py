"""The order a sound reward must give the scripted policies, and where it contradicts their PnL.

Every policy walks the same bars, so differences are taken within an episode and their standard
error is that of the mean of these differences (ddof 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from backtest.audit.policies import POLICIES
from backtest.audit.scores import Scores
from backtest.market.layout import Array

# By source of the bars: (better, worse). On a user's bars costs may exceed what 55 % accuracy
# earns, so only what holds in every market is required there.
REQUIRED = {
    "synthetic": (
        ("foresight", "foresight_shrunk"),
        ("foresight_shrunk", "accurate_55"),
        ("accurate_55", "flat"),
        ("flat", "random"),
        ("random", "inverse"),
        ("foresight", "foresight_third"),
    ),
    "bars": (("foresight", "flat"), ("flat", "inverse"), ("foresight", "random")),
}
LEAST_T = 3.0  # standard errors between two neighbours of a required order
PNL_T = 2.0  # standard errors from which two policies differ in PnL
PLACE = {name: i for i, name in enumerate(POLICIES)}


@dataclass(frozen=True)
class Gap:
    """How far one policy's mean reward lies above another's.

    Attributes:
        horizon: episode length, steps.
        better: the policy that must be, or by PnL is, the better one.
        worse: the other one.
        reward: mean reward of better minus worse, per step.
        reward_t: the same in standard errors.
        pnl: net PnL of better minus worse, currency an episode.
        pnl_t: the same in standard errors.
        term: weighted term that speaks most for the worse policy; None when none does.
    """

    horizon: int
    better: str
    worse: str
    reward: float
    reward_t: float
    pnl: float
    pnl_t: float
    term: str | None

    @property
    def holds(self) -> bool:
        """Whether the reward puts them in this order beyond chance."""
        return self.reward_t >= LEAST_T

    @property
    def text(self) -> str:
        """One line with figures, for a check or a table."""
        better, worse = POLICIES[self.better], POLICIES[self.worse]
        turned = f", turned by {self.term}" if self.reward < 0 and self.term else ""
        return (
            f"T={self.horizon}: {better} over {worse}: reward {self.reward:+.4f} a step "
            f"({self.reward_t:+.1f} se), net PnL {self.pnl:+.0f} ({self.pnl_t:+.1f} se){turned}"
        )


def required_gaps(scores: Scores, source: str, horizon: int) -> tuple[Gap, ...]:
    """Return the gaps that must hold for bars of this source."""
    return tuple(gap(scores, horizon, better, worse) for better, worse in REQUIRED[source])


def disagreements(scores: Scores, source: str, horizon: int) -> tuple[Gap, ...]:
    """Return the pairs, beyond the required ones, whose reward contradicts their net PnL.

    Only pairs whose PnL differs beyond chance count; `better` is the one that earned more.
    """
    required = {frozenset(pair) for pair in REQUIRED[source]}
    found = []
    for pair in combinations(POLICIES, 2):
        if frozenset(pair) in required:
            continue
        ahead = gap(scores, horizon, *pair)
        if abs(ahead.pnl_t) <= PNL_T:
            continue
        if ahead.pnl < 0:
            ahead = gap(scores, horizon, *reversed(pair))
        if ahead.reward < 0:
            found.append(ahead)
    return tuple(found)


def gap(scores: Scores, horizon: int, better: str, worse: str) -> Gap:
    """Return the gap between two policies."""

    def ahead(values: Array) -> Array:
        difference: Array = values[PLACE[better]] - values[PLACE[worse]]
        return difference

    against = {name: float(ahead(values).mean()) for name, values in scores.terms.items()}
    term = min(against, key=lambda name: against[name])
    reward, pnl = ahead(scores.reward), ahead(scores.pnl)
    return Gap(
        horizon=horizon,
        better=better,
        worse=worse,
        reward=float(reward.mean()),
        reward_t=t_statistic(reward),
        pnl=float(pnl.mean()),
        pnl_t=t_statistic(pnl),
        term=term if against[term] < 0 else None,
    )


def t_statistic(x: Array) -> float:
    """Return the mean of x in its standard errors; 0 when all are 0 or there is but one value."""
    mean = float(x.mean())
    if len(x) < 2:
        return 0.0
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    if error == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / error
