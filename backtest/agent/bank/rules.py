"""The parameters of a bank as the float32 numbers that NumPy and kernels compute with."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from backtest.agent_sections import SkillBank


@dataclass(frozen=True)
class Rules:
    """What the update, the lifecycle and the utility rules read of a `SkillBank` section.

    keep_x = 1 - beta_x in float32: an average moves to `keep_x*old + beta_x*new`.
    """

    full: bool  # the applied vector is an average of g, not direction*scale
    direction_threshold: np.float32  # cosine
    beta_key: np.float32
    keep_key: np.float32
    beta_direction: np.float32
    keep_direction: np.float32
    beta_magnitude: np.float32
    keep_magnitude: np.float32
    beta_correction: np.float32
    keep_correction: np.float32
    beta_utility: np.float32
    keep_utility: np.float32
    max_correction: np.float32  # norm
    min_confirmations: int
    protection_age: int  # ticks
    inactivity_age: int  # ticks
    candidate_ttl: int  # ticks
    aggregate: int  # observations a cell sums before it emits one; 1 = no cells


def rules_of(section: SkillBank) -> Rules:
    """Return the rules of a section."""
    one = np.float32(1)
    values: dict[str, np.float32 | int | bool] = {"full": section.representation == "full"}
    for field in fields(Rules):
        kind, _, what = field.name.partition("_")
        if kind == "keep":
            values[field.name] = one - np.float32(getattr(section, f"beta_{what}"))
        elif field.name not in values:
            value = getattr(section, field.name)
            values[field.name] = value if isinstance(value, int) else np.float32(value)
    return Rules(**values)  # type: ignore[arg-type]
