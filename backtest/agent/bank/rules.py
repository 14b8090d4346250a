"""The parameters of a bank as the float32 numbers that NumPy and kernels compute with."""

from __future__ import annotations

from dataclasses import dataclass

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
    key, direction = np.float32(section.beta_key), np.float32(section.beta_direction)
    magnitude, correction = np.float32(section.beta_magnitude), np.float32(section.beta_correction)
    utility = np.float32(section.beta_utility)
    return Rules(
        full=section.representation == "full",
        direction_threshold=np.float32(section.direction_threshold),
        beta_key=key,
        keep_key=one - key,
        beta_direction=direction,
        keep_direction=one - direction,
        beta_magnitude=magnitude,
        keep_magnitude=one - magnitude,
        beta_correction=correction,
        keep_correction=one - correction,
        beta_utility=utility,
        keep_utility=one - utility,
        max_correction=np.float32(section.max_correction),
        min_confirmations=section.min_confirmations,
        protection_age=section.protection_age,
        inactivity_age=section.inactivity_age,
        candidate_ttl=section.candidate_ttl,
        aggregate=section.aggregate,
    )
