"""A policy as flat float32 arrays, as kernels read it, and its forward pass in NumPy.

`forward` is the oracle of the OpenCL policy. The dueling combination V + A - mean(A) is linear, so
it is folded into the head here, once, in float64. Needs no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.agent.actions import SPANS
from backtest.market.layout import AUX_SLOT, BAR_SLOTS, N_ACTIONS, PORTFOLIO_SLOTS, STATE_DIM

N_BAR = len(BAR_SLOTS)
AUX_COLUMN = BAR_SLOTS.index(AUX_SLOT)  # of the bar part
N_DIRECTIONS = SPANS[0][1]
Floats = npt.NDArray[np.float32]
State = Mapping[str, Floats]  # the network's parameters by name


class Flat:
    """What every policy as flat arrays answers about its trunk and heads."""

    b1: Floats  # [h1]
    b2: Floats  # [h2]
    z: Floats  # [atoms]

    @property
    def atoms(self) -> int:
        """Number of atoms of the return distribution."""
        return len(self.z)

    @property
    def hidden(self) -> tuple[int, int]:
        """Widths of the two hidden layers."""
        return len(self.b1), len(self.b2)

    @property
    def weight_hash(self) -> str:
        """SHA-256 (hex) over names, shapes and little-endian bytes of all fields."""
        return array_hash(self)


@dataclass(frozen=True)
class PolicyWeights(Flat):
    """One policy for one kernel argument each; all arrays float32, C order, rows are outputs."""

    W1_bar: Floats  # [h1, 115], columns in the order of BAR_SLOTS
    b1: Floats  # [h1]
    W1_portfolio: Floats  # [h1, 13], columns in the order of PORTFOLIO_SLOTS
    W2: Floats  # [h2, h1]
    b2: Floats  # [h2]
    W_head: Floats  # [13*atoms, h2], row = action*atoms + atom, dueling folded in
    b_head: Floats  # [13*atoms]
    z: Floats  # [atoms], the support of the return, reward units
    alpha: Floats  # [4], centred; times slot 121 it adds to the direction values


def array_hash(weights: Any) -> str:
    """Return SHA-256 (hex) over the fields of a dataclass of float32 arrays and small integers."""
    digest = hashlib.sha256()
    for field in fields(weights):
        array = np.ascontiguousarray(getattr(weights, field.name), "<f4")
        digest.update(f"{field.name}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def support(v_max: float, atoms: int) -> Floats:
    """Return float32[atoms], equally spaced on [-v_max, v_max] and exactly symmetric."""
    return np.asarray(np.arange(1 - atoms, atoms, 2) / (atoms - 1) * v_max, np.float32)


def fold_dueling(state: State) -> tuple[Floats, Floats]:
    """Return head weight [13*atoms, h2] and bias [13*atoms] with V + A - mean_branch(A) inside.

    Formula: Wang 2016 (dueling) per atom and branch (Tavakoli 2018), in float64.
    """
    value = np.column_stack([state["value.weight"], state["value.bias"]]).astype(np.float64)
    flat = np.column_stack([state["advantage.weight"], state["advantage.bias"]])
    advantage = flat.astype(np.float64).reshape(N_ACTIONS, *value.shape)
    for start, stop in SPANS:
        mean = sum(advantage[start:stop]) / (stop - start)
        advantage[start:stop] += value - mean
    folded = advantage.reshape(-1, value.shape[1]).astype(np.float32)
    return np.ascontiguousarray(folded[:, :-1]), np.ascontiguousarray(folded[:, -1])


def centred(alpha: Floats) -> Floats:
    """Return the bypass weights less their mean: a forecast ranks directions, it adds no value."""
    return np.asarray(alpha - alpha.mean(dtype=np.float64), np.float32)


def export(state: State, v_max: float) -> PolicyWeights:
    """Return the kernel's view of a network's parameters.

    Args:
        state: parameters of `backtest.agent.network.QNetwork` by name.
        v_max: upper end of the symmetric support, reward units.
    """
    head, bias = fold_dueling(state)
    bar_weight, portfolio_weight = split(state["first.weight"])
    return PolicyWeights(
        W1_bar=bar_weight,
        b1=state["first.bias"],
        W1_portfolio=portfolio_weight,
        W2=state["hidden.weight"],
        b2=state["hidden.bias"],
        W_head=head,
        b_head=bias,
        z=support(v_max, len(state["value.bias"])),
        alpha=centred(state["alpha.weight"]),
    )


def bar_table(weights: PolicyWeights, bar_part: Floats) -> Floats:
    """Return float32[B, h1], the first layer's bar part: it depends on the bar alone."""
    return bar_part @ weights.W1_bar.T + weights.b1


def forward(weights: PolicyWeights, bar_part: Floats, portfolio: Floats) -> Floats:
    """Return the 13 action values of each row, float32[B, 13].

    Args:
        weights: the policy.
        bar_part: float32[B, 115], the state's BAR_SLOTS.
        portfolio: float32[B, 13], the state's PORTFOLIO_SLOTS.
    """
    table = bar_table(weights, bar_part)
    return forward_table(weights, table, portfolio, bar_part[:, AUX_COLUMN])


def forward_table(
    weights: PolicyWeights, table: Floats, portfolio: Floats, forecast: Floats
) -> Floats:
    """As `forward`, from rows of `bar_table` (float32[B, h1]) and slot 121 (float32[B])."""
    first = np.maximum(table + portfolio @ weights.W1_portfolio.T, np.float32(0))
    second = np.maximum(first @ weights.W2.T + weights.b2, np.float32(0))
    values = action_values(second, weights.W_head, weights.b_head, weights.z)
    return bypass(values, weights.alpha, forecast)


def action_values(hidden: Floats, weight: Floats, bias: Floats, z: Floats) -> Floats:
    """Return expected returns [B, 13] on atoms z of the last hidden layer's output [B, h2]."""
    logits = (hidden @ weight.T + bias).reshape(-1, N_ACTIONS, len(z))
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    values: Floats = (p @ z) / p.sum(axis=2)
    return values


def bypass(values: Floats, alpha: Floats, forecast: Floats) -> Floats:
    """Add alpha [4] (centred) times the forecast [B] of slot 121 to the direction values, in place.

    A row times weights of zero changes nothing.
    """
    values[:, :N_DIRECTIONS] += forecast[:, None] * alpha
    return values


def assemble(bar_part: Floats, portfolio: Floats) -> Floats:
    """Return the whole state float32[B, 128] from its bar part [B, 115] and portfolio [B, 13]."""
    state = np.empty((len(bar_part), STATE_DIM), np.float32)
    state[:, list(BAR_SLOTS)] = bar_part
    state[:, list(PORTFOLIO_SLOTS)] = portfolio
    return state


def split(state: Floats) -> tuple[Floats, Floats]:
    """Return (bar part [B, 115], portfolio [B, 13]) of whole states [B, 128]."""
    if state.shape[1:] != (STATE_DIM,):
        raise ValueError(f"state has shape {state.shape}; expected [B, {STATE_DIM}]")
    # take gives C order, which kernels read
    return state.take(BAR_SLOTS, axis=1), state.take(PORTFOLIO_SLOTS, axis=1)


def check_shapes(state: State, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return one clause for each parameter that is missing or of another shape; [] when all fit."""
    found = {name: tuple(array.shape) for name, array in state.items()}
    return [
        f"{name} is {found.get(name, 'missing')}, expected {shape}"
        for name, shape in expected.items()
        if found.get(name) != shape
    ]


def parameter_shapes(hidden: tuple[int, int], atoms: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of an `mlp` network by name."""
    h1, h2 = hidden
    return {
        "first.weight": (h1, STATE_DIM),
        "first.bias": (h1,),
        "hidden.weight": (h2, h1),
        "hidden.bias": (h2,),
        "value.weight": (atoms, h2),
        "value.bias": (atoms,),
        "advantage.weight": (N_ACTIONS * atoms, h2),
        "advantage.bias": (N_ACTIONS * atoms,),
        "alpha.weight": (N_DIRECTIONS,),
    }
