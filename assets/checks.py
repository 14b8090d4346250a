"""Asset checks as plain functions: what must hold, and the figures that show it.

Blocking checks stop what would be built on a failure. They are evaluated in the step that makes the
asset, on what it holds in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from assets.tables import table
from backtest.market.layout import COMPONENTS, End

if TYPE_CHECKING:
    from backtest.agent.experience import Experience
    from backtest.audit.report import Audit
    from backtest.data.bars import Bars
    from backtest.features.table import FeatureTable
    from backtest.market.tape import Tape
    from backtest.sections import Folds
    from backtest.splits import Fold

PRICES = ("open", "high", "low", "close")
SAMPLE = 16, 128  # episodes and steps replayed on the host
MEANING = {
    "time_order": "Bars close one after the other.",
    "no_nan": "No price, volume or feature is missing.",
    "audit_order": "The reward ranks scripted policies by what they are worth.",
    "fold_disjoint": "Train, validation and test follow each other, a purge apart.",
    "kernel_equals_oracle": "The kernel walks a sample as the NumPy market does, bit for bit.",
    "range_holds": "The range of returns was wide enough for what was learned.",
    "control_fails": "A direction forecaster fitted to shuffled labels forecasts nothing.",
    "bank_matches_weights": "Every skill bank was collected on the weights of its policy.",
    "gate_ran": "Validation tried every bank, and chose nothing that did not pass its gate.",
    "equity_reconciles": "The trades of every policy and baseline add up to its equity.",
    "not_ruined": "No policy, as validation chose it, lost its capital in the test window.",
    "no_fold_missing": "Every fold that the bars allow has a result.",
    "results_whole": "Every result on the lake can be read.",
}


def specs(
    asset: str,
    names: Sequence[str],
    partitions: dg.PartitionsDefinition[str] | None,
    *,
    blocking: bool,
) -> list[dg.AssetCheckSpec]:
    """Return the specifications of checks; what each one says is in `MEANING`."""
    return [
        dg.AssetCheckSpec(
            name,
            asset=asset,
            description=MEANING[name],
            blocking=blocking,
            partitions_def=partitions,
        )
        for name in names
    ]


def result(name: str, passed: bool, text: str, **figures: Any) -> dg.AssetCheckResult:
    """Return the result of a check that must hold."""
    return dg.AssetCheckResult(
        check_name=name, passed=bool(passed), description=text, metadata=figures
    )


def warning(name: str, passed: bool, text: str, **figures: Any) -> dg.AssetCheckResult:
    """Return the result of a check whose failure stops nothing."""
    return dg.AssetCheckResult(
        check_name=name,
        passed=bool(passed),
        severity=dg.AssetCheckSeverity.WARN,
        description=text,
        metadata=figures,
    )


def over_folds(
    names: Sequence[str], found: Mapping[str, Sequence[dg.AssetCheckResult]]
) -> list[dg.AssetCheckResult]:
    """Return one result a check for all folds of a run; what failed says in which fold.

    Args:
        names: of the checks.
        found: their results by fold, each in this order.
    """
    if len(found) == 1:
        return list(*found.values())
    merged = []
    for place, name in enumerate(names):
        own = {key: results[place] for key, results in found.items()}
        bad = [f"{key}: {one.description}" for key, one in own.items() if not one.passed]
        text = "; ".join(bad) or f"holds in all {len(own)} folds"
        merged.append(result(name, not bad, text))
    return merged


def skipped(names: Sequence[str], reason: str) -> list[dg.AssetCheckResult]:
    """Return results for a fold without anything to check."""
    return [result(name, True, f"skipped: {reason}") for name in names]


def time_order(bars: Bars) -> dg.AssetCheckResult:
    """Bars close one after the other."""
    step = np.diff(bars.time)
    back = int((step <= 0).sum())
    return result("time_order", back == 0, f"{back} bars close no later than the one before")


def finite_bars(bars: Bars) -> dg.AssetCheckResult:
    """No price or volume is missing."""
    bad = {name: int((~np.isfinite(getattr(bars, name))).sum()) for name in (*PRICES, "volume")}
    return result("no_nan", not any(bad.values()), f"{sum(bad.values())} values missing", **bad)


def finite_features(windows: Mapping[str, FeatureTable], warmup: int) -> dg.AssetCheckResult:
    """No feature is missing after the warm-up, in any of the windows."""
    bad: dict[str, int] = {}
    for key, window in windows.items():
        start = min(max(window.first_bar, warmup), window.stop)
        rows = window.rows(start, window.stop)
        if missing := int((~np.isfinite(rows)).sum()):
            bad[key] = missing
    text = f"{len(windows)} windows, features missing after bar {warmup} in {list(bad) or 'none'}"
    return result("no_nan", not bad, text, **bad)


def audit_order(audits: Sequence[Audit]) -> dg.AssetCheckResult:
    """The reward ranks scripted policies by what they are worth."""
    failures = [gap for audit in audits for gap in audit.failures]
    text = "; ".join(audit.summary for audit in audits)
    return result("audit_order", not failures, text, failures=[gap.text for gap in failures])


def fold_disjoint(fold: Fold, plan: Folds) -> dg.AssetCheckResult:
    """Train, validation and test follow each other, a purge apart, after the warm-up."""
    windows = {name: getattr(fold, name) for name in ("train", "validation", "test")}
    purge = plan.horizon + plan.fill_lag if plan.purge is None else plan.purge
    edges = [plan.warmup, *(edge for w in windows.values() for edge in (w.start, w.stop))]
    gaps = {
        "before_validation": fold.validation.start - fold.train.stop,
        "before_test": fold.test.start - fold.validation.stop,
    }
    ordered = all(a <= b for a, b in pairwise(edges))
    text = ", ".join(f"{name} [{w.start}, {w.stop})" for name, w in windows.items())
    return result("fold_disjoint", ordered and min(gaps.values()) >= purge, text, **gaps)


def kernel_equals_oracle(tape: Tape, experience: Experience, exact: bool) -> dg.AssetCheckResult:
    """The device walked a sample of episodes as the NumPy market does.

    Args:
        tape: what the device walked.
        experience: what it found.
        exact: its float32 rounds as NumPy's; on other devices a difference is a warning.
    """
    from backtest.market.walk import walk_actions

    n, steps = len(experience.start), min(SAMPLE[1], len(experience.reward) - 1)
    places = np.unique(np.linspace(0, n - 1, SAMPLE[0]).astype(int))
    # one step more: the oracle ends its walk on it
    action = experience.action[: steps + 1, places]
    walk = walk_actions(tape, experience.start[places], action).result[:steps]
    alive = walk["end"] != End.DEAD
    seen = {n: getattr(experience, n)[:steps, places] for n in ("reward", "equity", "end")}
    if experience.components is not None:
        columns = np.moveaxis(experience.components[:steps, places], 2, 0)
        seen |= dict(zip(COMPONENTS, columns, strict=True))
    differing = [
        name
        for name, values in seen.items()
        if not np.array_equal(walk[name][alive], values[alive])
    ]
    report = result if exact else warning
    return report(
        "kernel_equals_oracle",
        not differing,
        f"{int(alive.sum()):,} steps of {len(places)} episodes, {len(seen)} columns; different: "
        f"{', '.join(differing) or 'none'}",
    )


def range_holds(failed: Mapping[int, bool], edge_mass: Mapping[int, float]) -> dg.AssetCheckResult:
    """The range of returns was wide enough for what was learned, by seed."""
    seeds = [seed for seed, bad in failed.items() if bad]
    return warning(
        "range_holds",
        not seeds,
        f"range of returns too narrow for seeds {seeds}; set learner.v_max"
        if seeds
        else "less than 5 % of the target mass lies on the outer atoms",
        largest_edge_mass=max(edge_mass.values()),
    )


def control_fails(reports: Mapping[int, Mapping[str, float | None]]) -> dg.AssetCheckResult:
    """A direction forecaster fitted to shuffled labels forecasts nothing.

    Args:
        reports: of `backtest.agent.aux_report.quality`, by seed; empty ones do not count.
    """
    found = {seed: report.get("aux_control_fails") for seed, report in reports.items()}
    seeds = [seed for seed, fails in found.items() if fails == 0.0]
    text = "the shuffled control has the AUC of a coin, or there is no forecast"
    if seeds:
        text = f"the shuffled control still forecasts for seeds {seeds}: its rows leak their labels"
    return warning("control_fails", not seeds, text)


def bank_matches_weights(refused: Mapping[str, str]) -> dg.AssetCheckResult:
    """Every skill bank was collected on the weights of its policy.

    Args:
        refused: why a bank cannot be used with its policy, by seed and bank.
    """
    text = "; ".join(f"{name}: {why}" for name, why in refused.items())
    return result("bank_matches_weights", not refused, text or "every bank fits its policy")


def gate_ran(faults: Mapping[int, Sequence[str]]) -> dg.AssetCheckResult:
    """Validation tried every bank, and chose nothing that did not pass its gate.

    Args:
        faults: of `backtest.evaluation.ablation.gate_faults`, by seed.
    """
    text = "; ".join(f"seed {seed}: {', '.join(found)}" for seed, found in faults.items() if found)
    return result("gate_ran", not text, text or "one choice a seed, none or an adopted variant")


def equity_reconciles(
    equity: Sequence[Mapping[str, Any]], trades: Sequence[Mapping[str, Any]], capital: float
) -> dg.AssetCheckResult:
    """The trades of every policy and baseline add up to its equity.

    Args:
        equity: rows of (policy_kind, variant, seed, pnl): sum and sum of absolute values by label.
        trades: rows of (policy_kind, variant, seed, pnl): sums by label.
        capital: currency.
    """
    earned = {label(row): row for row in equity}
    closed = {label(row): float(row["pnl"]) for row in trades}
    off = [
        {"policy": " ".join(map(str, key)), "equity": row["pnl"], "trades": closed.get(key, 0.0)}
        for key, row in earned.items()
        if abs(closed.get(key, 0.0) - row["pnl"]) > 1e-9 * (capital + row["size"])
    ]
    text = f"{len(earned)} records, {len(off)} whose trades do not add up to their equity"
    return result("equity_reconciles", not off, text, differing=table(off))


def not_ruined(lowest: Mapping[str, float], ruin_level: float) -> dg.AssetCheckResult:
    """No policy, as validation chose it, lost its capital in the test window."""
    ruined = [name for name, equity in lowest.items() if equity <= ruin_level]
    text = f"ruined: {', '.join(ruined)}" if ruined else "equity stays above the ruin level"
    return result("not_ruined", not ruined, text, lowest_equity=min(lowest.values()))


def label(row: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return who earned a row."""
    return row["policy_kind"], row["variant"], row["seed"]


def no_fold_missing(missing: Sequence[Any]) -> dg.AssetCheckResult:
    """Every fold that the bars allow has a result."""
    names = [f"{m.instrument} {m.fold_key} {m.status}: {m.reason or ''}" for m in missing]
    rows = [{"instrument": m.instrument, "fold": m.fold_key, "status": m.status} for m in missing]
    text = f"{len(names)} folds without a result{': ' if names else ''}{'; '.join(names[:5])}"
    return result("no_fold_missing", not names, text, folds=table(rows))


def results_whole(problems: Sequence[str]) -> dg.AssetCheckResult:
    """Every result on the lake could be read."""
    text = "; ".join(problems[:5]) or "all results are whole"
    return warning("results_whole", not problems, text, problems=list(problems))
