"""Banks of one shape as the arrays that `kernels/d2skill.cl` works on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.agent.bank import Bank
from backtest.agent.bank.ordered import square
from backtest.agent.bank.records import CELL, HEAD, RULES, SKILL, UTILITY_RULES
from backtest.agent.bank.state import BankState

Array = npt.NDArray[Any]

SLOT_FIELDS = (
    "scale", "utility", "mass", "influence", "agreement", "observations", "used", "state", "age",
    "protection", "retrieved", "contacts",
)  # fmt: skip
POOL_FIELDS = ("scale", "used", "streak", "clock")  # pool_* of a state
CELL_FIELDS = ("count", "used", "last")  # cell_* of a state
HEAD_FIELDS = ("threshold", "norm_ema", "h_mean", "norm_ref", "h_ref", "h_count", "cell_clock")
VECTORS = ("keys", "directions", "corrections")  # rows of slots, then of candidates
PLAIN = ("cell_keys", "cell_sum", "uses", "counters", "center")


def rules_record(bank: Bank) -> Array:
    """Return sizes and parameters as one `BankRules` record."""
    rules, section = bank.rules, bank.section
    given = {name: getattr(rules, name) for name, _, _ in RULES.fields if hasattr(rules, name)}
    return RULES.pack(
        **given,
        slots=bank.slots,
        pool=len(bank.state.pool_used),
        cells=len(bank.state.cell_used),
        key_dim=bank.key_dim,
        dim=bank.dim,
        utility_rule=UTILITY_RULES.index(section.utility_rule),
        trapezoid=section.influence_rule == "trapezoid",
    )


def pack(banks: Sequence[Bank]) -> dict[str, Array]:
    """Return the arrays of M banks by name, leading axis M.

    head BankHead[M]; skills BankSkill[M, N + P]; keys, directions, corrections float32[M, N + P,
    K or D]; cells BankCell[M, C]; cell_keys, cell_sum float32[M, C, K or D]; uses int64[M, N];
    counters int64[M, n]; center float32[M, K].
    """
    made = [_pack(bank.state) for bank in banks]
    return {name: np.stack([arrays[name] for arrays in made]) for name in made[0]}


def _pack(state: BankState) -> dict[str, Array]:
    slots, pool = len(state.used), len(state.pool_used)
    skills = np.zeros(slots + pool, SKILL.dtype)
    for name in SLOT_FIELDS:
        skills[name][:slots] = getattr(state, name)
    for name in POOL_FIELDS:
        skills[name][slots:] = getattr(state, f"pool_{name}")
    vectors = {
        name: np.concatenate([getattr(state, name), getattr(state, f"pool_{name}")])
        for name in VECTORS
    }
    skills["key_square"] = square(vectors["keys"])
    skills["direction_square"] = square(vectors["directions"])
    cells = np.zeros(len(state.cell_used), CELL.dtype)
    for name in CELL_FIELDS:
        cells[name] = getattr(state, f"cell_{name}")
    cells["key_square"] = square(state.cell_keys)
    head = np.zeros((), HEAD.dtype)
    for name in HEAD_FIELDS:
        head[name] = getattr(state, name)
    plain = {name: getattr(state, name) for name in PLAIN}
    return {"head": head, "skills": skills, **vectors, "cells": cells, **plain}


def unpack(arrays: dict[str, Array], banks: Sequence[Bank]) -> list[Bank]:
    """Return new banks with these arrays; what the device does not hold is that of `banks`."""
    return [
        _unpack({name: array[i] for name, array in arrays.items()}, bank)
        for i, bank in enumerate(banks)
    ]


def _unpack(arrays: dict[str, Array], bank: Bank) -> Bank:
    state = bank.state_dict()
    for name in SLOT_FIELDS:
        state[name] = arrays["skills"][name][: bank.slots].astype(state[name].dtype)
    for name in POOL_FIELDS:
        wanted = state[f"pool_{name}"]
        state[f"pool_{name}"] = arrays["skills"][name][bank.slots :].astype(wanted.dtype)
    for name in VECTORS:
        state[name] = arrays[name][: bank.slots].copy()
        state[f"pool_{name}"] = arrays[name][bank.slots :].copy()
    for name in CELL_FIELDS:
        wanted = state[f"cell_{name}"]
        state[f"cell_{name}"] = arrays["cells"][name].astype(wanted.dtype)
    for name in HEAD_FIELDS:
        state[name] = np.array(arrays["head"][name], state[name].dtype)
    for name in PLAIN:
        state[name] = arrays[name].copy()
    made = Bank(bank.slots, bank.dim, key_dim=bank.key_dim, **bank.parameters)
    made.load_state_dict(state)
    return made
