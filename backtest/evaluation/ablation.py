"""A variant of a policy against `none`: same seed, same bars. What changed, and what it was worth.

`none` is the policy without skill banks; `task`, `step` and `both` use them, `finetune` spends
their budget on training on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest import rng
from backtest.config import Evaluation
from backtest.errors import DataError
from backtest.evaluation.intervals import Interval, total_interval
from backtest.evaluation.metrics import daily_pnl
from backtest.evaluation.rows import Row
from backtest.market.layout import Array, End

NONE, FINETUNE = "none", "finetune"
VARIANTS = (NONE, "task", "step", "both", FINETUNE)
# What a row of the ablation amounts to, in words.
REFERENCE = "reference"  # `none` itself
INERT = "inert"  # not one decision of the test window differs
ADOPTED, NOT_ADOPTED = "adopted", "not adopted"
COMPARISON = "comparison"  # training on: shown beside, never a candidate


@dataclass(frozen=True)
class Outcome:
    """One variant in the test window.

    Attributes:
        action: uint8[n, 4], decisions.
        end: uint8[n], `End`.
        pnl: float64[n], currency, net.
        sharpe: annualised; None where undefined.
    """

    action: Array
    end: Array
    pnl: Array
    sharpe: float | None


def decisions_changed(action: Array, end: Array, other: Array, other_end: Array) -> int:
    """Return how many decisions of two runs over the same bars differ, in any branch.

    Rows after the end of either run are no decisions.

    Args:
        action: uint8[..., 4].
        end: uint8[...], `End`.
        other: as `action`, of the other run.
        other_end: as `end`.
    """
    alive = (end != End.DEAD) & (other_end != End.DEAD)
    return int(np.count_nonzero(np.any(action != other, axis=-1) & alive))


def paired_pnl(
    session: Array, pnl: Array, reference: Array, key: rng.Words, chance: Evaluation
) -> Interval:
    """Return the net PnL of a run minus that of its reference, with its interval over time.

    The stationary bootstrap resamples the differences by session.

    Args:
        session: int[n], of every bar, in the order of time.
        pnl: float64[n], currency.
        reference: float64[n], currency.
        key: uint32[2], for the bootstrap.
        chance: resamples and confidence.
    """
    _, daily = daily_pnl(session, pnl - reference)
    return total_interval(daily, key, resamples=chance.bootstrap, confidence=chance.confidence)


def strength(alpha: Mapping[str, float | None]) -> float | None:
    """Return the alpha of a variant; None without banks, or when its two banks differ."""
    known = {value for value in alpha.values() if value is not None}
    return known.pop() if len(known) == 1 else None


def verdict(variant: str, adopted: bool, changed: int) -> str:
    """Return what a row amounts to; without a changed decision it is inert, never neutral."""
    if variant == NONE:
        return REFERENCE
    if not changed:
        return INERT
    if variant == FINETUNE and not adopted:
        return COMPARISON
    return ADOPTED if adopted else NOT_ADOPTED


def ablation_row(
    entry: Mapping[str, Any],
    found: Outcome,
    reference: Outcome,
    session: Array,
    key: rng.Words,
    chance: Evaluation,
) -> Row:
    """Return one row of table skill_ablation, without fold and seed.

    Args:
        entry: what validation said: variant, alpha by bank, adopted, chosen, validation_delta.
        found: the variant in the test window.
        reference: `none` of the same seed.
        session: int[n], of every bar.
        key: uint32[2], for the bootstrap.
        chance: resamples and confidence.
    """
    changed = decisions_changed(found.action, found.end, reference.action, reference.end)
    gain = paired_pnl(session, found.pnl, reference.pnl, key, chance)
    return {
        "variant": entry["variant"],
        "alpha": strength(entry["alpha"]),
        "adopted": entry["adopted"],
        "chosen": entry["chosen"],
        "decisions_changed": changed,
        "validation_delta": entry["validation_delta"],
        "delta_sharpe": difference(found.sharpe, reference.sharpe),
        "delta_pnl": gain.value,
        "low": gain.low,
        "high": gain.high,
        "verdict": verdict(entry["variant"], entry["adopted"], changed),
    }


def gate_faults(
    banks: Sequence[str], finetune: bool, entries: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return what is wrong with the choice that validation made for one seed; empty if nothing.

    Every bank must have been tried; a bank is adopted when its interval lies above zero, and
    nothing else is; the one that is chosen is `none` or adopted.

    Args:
        banks: task, step or both of them, as configured.
        finetune: the variant is part of the study.
        entries: of the summary, see `ablation_row`; with validation_low and
            decisions_changed_validation.
    """
    wanted = {NONE, *banks, *(["both"] if len(banks) > 1 else []), *([FINETUNE] * finetune)}
    names = [entry["variant"] for entry in entries]
    faults = [f"variant {name} is missing" for name in sorted(wanted - set(names))]
    faults += [f"variant {name} was not asked for" for name in sorted(set(names) - wanted)]
    for entry in entries:
        name, low = entry["variant"], entry.get("validation_low")
        tried = any(alpha is not None for alpha in entry["alpha"].values())
        if tried and entry.get("decisions_changed_validation") is None:
            faults.append(f"{name} was not tried on validation")
        if entry["adopted"] and not (low is not None and low > 0):
            faults.append(f"{name} is adopted with a validation interval from {low}")
        if name in banks and not entry["adopted"] and low is not None and low > 0:
            faults.append(f"{name} is not adopted although its validation interval begins at {low}")
    chosen = [entry for entry in entries if entry["chosen"]]
    if len(chosen) != 1:
        faults.append(f"{len(chosen)} variants are chosen, one was expected")
    faults += [
        f"{entry['variant']} is chosen without being adopted"
        for entry in chosen
        if entry["variant"] != NONE and not entry["adopted"]
    ]
    return faults


def difference(a: float | None, b: float | None) -> float | None:
    """Return a - b; None when either is undefined."""
    return None if a is None or b is None else a - b


def picks(rows: Sequence[Row]) -> dict[int, str]:
    """Return the variant that validation chose, by seed.

    Args:
        rows: of table skill_ablation, of one fold.

    Raises:
        DataError: a seed with two choices, or with none.
    """
    found: dict[int, list[str]] = {}
    for row in rows:
        chosen = found.setdefault(row["seed"], [])
        if row["chosen"]:
            chosen.append(row["variant"])
    for seed, names in found.items():
        if len(names) != 1:
            raise DataError(
                f"seed {seed}: validation chose {names or 'nothing'}, one variant was expected; "
                "materialise skill_bank of this fold again"
            )
    return {seed: name for seed, (name,) in found.items()}
