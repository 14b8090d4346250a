"""The adoption gate: what validation says of each variant, and the variant it chooses.

A bank is used only at the strength that did best on the validation window, and only when the
interval of its paired gain there lies above zero. The test window has no say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest import rng
from backtest.config import Evaluation
from backtest.evaluation.ablation import FINETUNE, NONE
from backtest.evaluation.intervals import Interval, total_interval

Entry = dict[str, Any]  # what validation says of a variant, as the summary of a seed holds it
Strength = Mapping[str, float]  # alpha by bank name


@dataclass(frozen=True)
class Trial:
    """A variant on the validation window beside `none`: same bars, same random stream.

    Attributes:
        variant: task, step or both; finetune.
        alpha: strength by bank; {} for finetune.
        changed: decisions that differ from those of `none`.
        returns: float64[sessions], net PnL of each session, currency.
        delta: mean gain a session with its interval, in standard deviations of the PnL of `none`;
            None where that has none.
    """

    variant: str
    alpha: Strength
    changed: int
    returns: npt.NDArray[np.float64]
    delta: Interval

    @property
    def gains(self) -> bool:
        """The interval of its gain lies above zero."""
        return self.delta.low is not None and self.delta.low > 0


def paired_gain(
    returns: npt.NDArray[np.float64],
    reference: npt.NDArray[np.float64],
    key: rng.Words,
    chance: Evaluation,
) -> Interval:
    """Return the mean gain a session, in standard deviations (ddof 1) of the reference's PnL.

    The stationary bootstrap resamples the differences by session.

    Args:
        returns: float64[n], net PnL by session, currency.
        reference: float64[n], of `none`.
        key: uint32[2], of the bootstrap.
        chance: resamples and confidence.
    """
    spread = float(np.std(reference, ddof=1)) if len(reference) > 1 else 0.0
    if not spread > 0:
        return Interval(None, None, None, len(returns))
    gain = (returns - reference) / spread / len(returns)
    return total_interval(gain, key, resamples=chance.bootstrap, confidence=chance.confidence)


def best(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the largest gain; ties and undefined gains keep the earlier."""
    found: Trial | None = None
    for trial in trials:
        value = trial.delta.value
        if value is None:
            continue
        if found is None or value > (found.delta.value or 0.0):
            found = trial
    return found


def adopted(trial: Trial | None, parts: Sequence[Trial | None] = ()) -> bool:
    """Return whether a trial passes its gate: its own gain, and that of each bank it is made of."""
    return trial is not None and trial.gains and all(p is not None and p.gains for p in parts)


def chosen(passed: Mapping[str, Trial]) -> str:
    """Return the adopted variant with the largest gain, else none; ties keep the earlier."""
    first = best(list(passed.values()))
    return NONE if first is None else first.variant


def entries(trials: Sequence[Trial], banks: Sequence[str], paths: Mapping[str, str]) -> list[Entry]:
    """Return what validation says of every variant, `none` first; one of them is chosen.

    Args:
        trials: everything that was tried; each bank at least once.
        banks: names of the banks.
        paths: of the policies `none` and `finetune`.
    """
    tried = {
        name: [one for one in trials if one.variant == name]
        for name in (*banks, *(["both"] if len(banks) > 1 else []), FINETUNE)
    }
    tops = {name: best(found) for name, found in tried.items()}
    needs = {"both": [tops[name] for name in banks]}
    passed = {
        name: top
        for name, top in tops.items()
        if top is not None and name != FINETUNE and adopted(top, needs.get(name, ()))
    }
    choice = chosen(passed)
    base = Trial(NONE, {}, 0, np.zeros(0), Interval(None, None, None, 0))
    # a gain that is undefined at every strength is told of the first
    shown = [base, *(tops[name] or found[0] for name, found in tried.items() if found)]
    return [
        {
            "variant": one.variant,
            "alpha": dict(one.alpha),
            "adopted": one.variant in passed,
            "chosen": one.variant == choice,
            "validation_delta": one.delta.value,
            "validation_low": one.delta.low,
            "validation_high": one.delta.high,
            "decisions_changed_validation": one.changed,
            "policy": paths[FINETUNE if one.variant == FINETUNE else NONE],
        }
        for one in shown
    ]
