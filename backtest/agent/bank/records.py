"""Structs in which a device holds the small arrays of a bank; names are those of `BankState`.

`opencl.layout` renders them. Slots and candidates are rows of one kind: a candidate is promoted by
copying its row, and both are scored in one pass.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import Struct, floats

Fields = tuple[tuple[str, type[np.generic], int], ...]


def _ints(*names: str) -> Fields:
    return tuple((name, np.int32, 1) for name in names)


UTILITY_RULES = ("solo", "participation", "original")  # their codes are their places

# Sizes and parameters of a bank: the fields of `Rules`, by value.
RULES = Struct(
    "BankRules",
    (
        *_ints("slots", "pool", "cells", "key_dim", "dim"),
        *_ints("full", "min_confirmations", "protection_age", "inactivity_age", "candidate_ttl"),
        *_ints("aggregate", "utility_rule", "trapezoid"),
        *floats("direction_threshold", "max_correction"),
        *floats("beta_key", "keep_key", "beta_direction", "keep_direction"),
        *floats("beta_magnitude", "keep_magnitude", "beta_correction", "keep_correction"),
        *floats("beta_utility", "keep_utility"),
    ),
)

# One slot or candidate; 64 bytes. Fields of the other kind stay 0.
SKILL = Struct(
    "BankSkill",
    (
        *floats("scale", "utility", "mass", "influence", "agreement"),
        *floats("key_square", "direction_square"),  # ordered sums, kept beside their vectors
        *_ints("observations", "used", "state", "age", "protection", "retrieved", "contacts"),
        *_ints("streak", "clock"),  # of a candidate
    ),
)

# One aggregation cell.
CELL = Struct("BankCell", (*floats("key_square"), *_ints("count", "used", "last")))

# What a bank has once.
HEAD = Struct(
    "BankHead",
    (
        *floats("threshold", "norm_ema", "h_mean", "norm_ref", "h_ref"),
        *_ints("h_count", "cell_clock"),
    ),
)
