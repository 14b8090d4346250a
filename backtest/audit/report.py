"""The outcome of an audit: rows of table `reward_audit`, the order, and one summary line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from backtest.audit.order import Gap
from backtest.audit.policies import POLICIES
from backtest.audit.scores import Scores
from backtest.market.layout import COMPONENTS

Row = dict[str, str | int | float | bool | None]
COLUMNS = (
    "instrument",
    "formula",
    "source",
    "policy",
    "horizon",
    "mean_reward",
    *(f"mean_{name}" for name in COMPONENTS),
    "net_pnl",
    "order_ok",
)


@dataclass(frozen=True)
class Audit:
    """One reward on the bars of one source.

    Attributes:
        instrument: whose bars or whose study.
        formula: "calibrated" or "composite".
        source: "synthetic" or "bars".
        rows: one mapping of `COLUMNS` by horizon and policy, in their order.
        required: gaps that must hold.
        warnings: pairs whose reward contradicts their net PnL.
        ruined: fraction of ruined episodes by (horizon, policy), where there is one.
        regime: see `windows.regime_shares`.
        notional: full position at the median price over the initial capital.
    """

    instrument: str
    formula: str
    source: str
    rows: tuple[Row, ...]
    required: tuple[Gap, ...]
    warnings: tuple[Gap, ...]
    ruined: Mapping[tuple[int, str], float]
    regime: tuple[dict[str, str | float], ...]
    notional: float

    @property
    def order_ok(self) -> bool:
        """Whether every required gap holds."""
        return all(gap.holds for gap in self.required)

    @property
    def failures(self) -> tuple[Gap, ...]:
        """Required gaps that do not hold, the worst first."""
        broken = [gap for gap in self.required if not gap.holds]
        return tuple(sorted(broken, key=lambda gap: gap.reward_t))

    @property
    def summary(self) -> str:
        """One line: the order and its smallest gap, or the worst failure."""
        horizons = " and ".join(f"{h:,}" for h in sorted({gap.horizon for gap in self.required}))
        head = f"audit {self.formula} {self.source} T={horizons}:"
        count = len(self.warnings)
        tail = f", {count} warning{'s' if count > 1 else ''}" if count else ""
        if self.order_ok:
            least = min(self.required, key=lambda gap: gap.reward_t)
            return (
                f"{head} order holds (smallest gap {least.reward_t:.1f} se between "
                f"{POLICIES[least.better]} and {POLICIES[least.worse]}, T={least.horizon:,}){tail}"
            )
        broken = f"{len(self.failures)} of {len(self.required)} gaps"
        return f"{head} order FAILS in {broken}, worst {self.failures[0].text}{tail}"


def rows(
    scores: Scores, required: tuple[Gap, ...], *, instrument: str, formula: str, source: str
) -> tuple[Row, ...]:
    """Return the rows of one horizon, one by policy.

    `order_ok` is None for a policy that no required gap names.
    """
    horizon = required[0].horizon
    found: list[Row] = []
    for i, policy in enumerate(POLICIES):
        places = [gap.holds for gap in required if policy in (gap.better, gap.worse)]
        row: Row = {
            "instrument": instrument,
            "formula": formula,
            "source": source,
            "policy": policy,
            "horizon": horizon,
            "mean_reward": float(scores.reward[i].mean()),
        }
        row |= {f"mean_{name}": float(v[i].mean()) for name, v in scores.components.items()}
        row |= {
            "net_pnl": float(scores.pnl[i].mean()),
            "order_ok": all(places) if places else None,
        }
        found.append(row)
    return tuple(found)


def ruined_shares(scores: Scores, horizon: int) -> dict[tuple[int, str], float]:
    """Return the fraction of ruined episodes of every policy that was ruined at all."""
    shares = np.asarray(scores.ruined.mean(axis=1))
    return {
        (horizon, policy): float(share)
        for policy, share in zip(POLICIES, shares, strict=True)
        if share > 0
    }
