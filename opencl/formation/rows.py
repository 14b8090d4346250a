"""What the stages of skill formation leave, as rows of the tables skill and bank_stat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from backtest.agent.bank import Bank, SlotState
from backtest.agent.bank.state import QUANTILES
from backtest.market.layout import Array

Row = dict[str, Any]


def skill_rows(key: Mapping[str, Any], name: str, bank: Bank, influence: Array) -> list[Row]:
    """Return one row a slot, without `hits`, which the test window gives.

    Args:
        key: fold_id and seed.
        name: of the bank.
        bank: after EVALUATE.
        influence: float64[N], summed over its applications.
    """
    state = bank.state
    return [
        {
            **key,
            "bank": name,
            "slot": slot,
            "state": SlotState(int(state.state[slot])).name.lower(),
            "utility": float(state.utility[slot]),
            "uses": int(state.uses[slot]),
            "observations": int(state.observations[slot]),
            "age": int(state.age[slot]),
            "mass": float(state.mass[slot]),
            "scale": float(state.scale[slot]),
            "influence": float(influence[slot]),
        }
        for slot in range(bank.slots)
    ]


def bank_rows(
    key: Mapping[str, Any], name: str, bank: Bank, figures: Mapping[str, float | None]
) -> list[Row]:
    """Return the counters, thresholds and quantiles of a bank, and further figures.

    Args:
        key: fold_id and seed.
        name: of the bank.
        bank: after EVALUATE.
        figures: by name, such as coverage.
    """
    state = bank.state
    values: dict[str, float | None] = {k: float(v) for k, v in bank.counters.items()}
    values |= {
        f"cosine_q{round(100 * q):02d}": float(value)
        for q, value in zip(QUANTILES, state.quantiles, strict=True)
    }
    values |= {
        f"slots_{kind.name.lower()}": float(np.count_nonzero(state.state == kind))
        for kind in SlotState
    }
    met = state.contacts > 0
    values |= {
        "threshold": float(state.threshold),
        "norm_ref": float(state.norm_ref),
        "h_ref": float(state.h_ref),
        "direction_cosine": float(state.agreement[met].mean()) if met.any() else None,
        **figures,
    }
    return [{**key, "bank": name, "name": k, "value": v} for k, v in values.items()]
