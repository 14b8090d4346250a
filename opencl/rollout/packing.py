"""Weights in the order that the kernels read them; equal policies of one launch are packed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backtest.agent.kinds import Weights
from backtest.agent.scenario_weights import ScenarioWeights
from backtest.agent.weights import PolicyWeights
from backtest.market.layout import N_PORTFOLIO, Array
from opencl.rollout.operands import bf16, block_operands, even, head_operands, layer_operands
from opencl.rollout.sizes import MMA, QUERY_WIDTH, Sizes, up

LOG2_E = np.float32(np.log2(np.e))
NO_ATOM = -np.inf  # bias of a padded atom; its weights are 0


def distinct(policies: Sequence[object]) -> tuple[list[int], list[int]]:
    """Return where each object stands first, and for every object its place among those."""
    first: dict[int, int] = {}
    for i, policy in enumerate(policies):
        first.setdefault(id(policy), i)
    order = {key: place for place, key in enumerate(first)}
    return list(first.values()), [order[id(policy)] for policy in policies]


def pack(sizes: Sizes, policies: Sequence[Weights]) -> dict[str, Array]:
    """Return the weights of all policies by the name of the kernel argument, float32.

    Raises:
        ValueError: a policy has another shape.
    """
    sizes.shape.check(policies)
    rows = [{**_first(sizes, w), **_rest(sizes, w)} for w in policies]
    return {name: np.stack([row[name] for row in rows]).astype(np.float32) for name in rows[0]}


def _rest(sizes: Sizes, w: Weights) -> dict[str, Array]:
    """Return everything behind the first layer."""
    shape, (width1, width2) = sizes.shape, sizes.hidden
    heads, atoms = len(shape.heads), shape.atoms
    w2 = padded(w.W2, sizes.trunk_columns, width1)
    w3 = np.zeros((heads, sizes.head, width2), np.float32)
    b3 = np.full((heads, sizes.head), NO_ATOM, np.float32)
    w3[:, :atoms, : shape.hidden[1]] = w.W_head.reshape(-1, atoms, shape.hidden[1])[shape.heads]
    b3[:, :atoms] = w.b_head.reshape(-1, atoms)[shape.heads]
    z = w.z
    if sizes.tensor:
        z = even(w.z)
        # a softmax takes no notice of what all its logits share
        w3[:, :atoms] -= w3[:, :atoms].mean(axis=1, keepdims=True)
        b3[:, :atoms] -= b3[:, :atoms].mean(axis=1, keepdims=True)
        w2, w3 = layer_operands(w2), head_operands(w3.reshape(-1, width2) * LOG2_E)
        b3 = b3 * LOG2_E
    elif sizes.group:
        w2, w3 = fours(w2), fours(w3.swapaxes(0, 1).reshape(-1, width2))
        b3, z = b3.T, padded(w.z, sizes.head)
    b2 = padded(w.b2, sizes.trunk_columns)
    return {"w2": w2, "b2": b2, "w3": w3, "b3": b3, "z": z, "alpha": w.alpha}


def _first(sizes: Sizes, w: Weights) -> dict[str, Array]:
    """Return queries, and the first layer's weights of what the bar alone does not decide."""
    b1 = padded(w.b1, sizes.hidden[0])
    if isinstance(w, PolicyWeights):
        w1 = padded(w.W1_portfolio, sizes.hidden[0], MMA if sizes.tensor else N_PORTFOLIO)
        if sizes.tensor:
            w1 = layer_operands(w1, from_hidden=False)
        elif sizes.group:
            w1 = w1.T
        return {"query": np.zeros(0), "w1": w1, "b1": b1}
    query = _queries(w)
    if sizes.tensor:
        query = np.concatenate([query.ravel(), query_operands(w).ravel()])
    return {"query": query, "w1": _interpretation(sizes, w), "b1": b1}


def _queries(w: ScenarioWeights) -> Array:
    """Return the bias and weights of each balance and position query element, [2*S*L, 8]."""
    groups = []
    for weight, bias in ((w.Wq_balance, w.bq_balance), (w.Wq_position, w.bq_position)):
        rows = np.zeros((len(bias), QUERY_WIDTH), np.float32)
        rows[:, 0], rows[:, 1 : 1 + weight.shape[1]] = bias, weight
        groups.append(rows)
    return np.concatenate(groups)


def query_operands(w: ScenarioWeights) -> Array:
    """Return the balance and position queries' weights for tensor cores, [2, S, 2, 32, 4] words.

    The inputs are up to seven portfolio floats and 1 in bf16, then what bf16 leaves of them. The
    first operand has the rounded weights for both, the second their rest for the first.
    """
    out = []
    for weight, bias in ((w.Wq_balance, w.bq_balance), (w.Wq_position, w.bq_position)):
        wide = np.zeros((w.scenarios, MMA, QUERY_WIDTH), np.float32)
        shape = w.scenarios, w.latent, weight.shape[1]
        wide[:, : w.latent, : weight.shape[1]] = weight.reshape(shape)
        wide[:, : w.latent, weight.shape[1]] = bias.reshape(shape[:2])
        high = (bf16(wide).astype(np.uint32) << 16).view(np.float32)
        rest = np.concatenate([wide - high, np.zeros_like(wide)], axis=2)
        both = np.stack([np.concatenate([high, high], axis=2), rest], axis=1)
        out.append(block_operands(both.reshape(-1, MMA)).reshape(w.scenarios, 2, -1))
    return np.stack(out)


def _interpretation(sizes: Sizes, w: ScenarioWeights) -> Array:
    """Return W1 as the kernels read it, one scenario after the other.

    The network's columns are [stack][3][S][L]. Lanes: [stack, S, h1, 3*L]; group:
    [stack, S, 3*L/4, h1, 4]; tensor: [S, 3, h1/16, 32, 4] operands of L padded to 16.
    """
    shape = sizes.shape
    columns = (shape.stack_size, 3, shape.scenarios, shape.latent)
    w1 = padded(w.W1, sizes.hidden[0], w.W1.shape[1]).reshape(-1, *columns)
    w1 = w1.transpose(1, 3, 0, 2, 4)  # [stack, S, h1, 3, L]
    if not sizes.group:
        return w1
    width = MMA if sizes.tensor else up(shape.latent, 4)
    neurons = sizes.hidden[0] if sizes.tensor else sizes.encode_columns
    w1 = padded(w1, *w1.shape[:2], neurons, 3, width)
    rows = w1.reshape(-1, neurons, 3 * width)
    if sizes.tensor:
        return np.stack([layer_operands(row, from_hidden=False).swapaxes(0, 1) for row in rows])
    return np.stack([fours(row) for row in rows])


def fours(w: Array) -> Array:
    """Return weights [n_out, n_in] as [n_in/4, n_out, 4]."""
    n_out, n_in = w.shape
    return w.reshape(n_out, n_in // 4, 4).swapaxes(0, 1)


def padded(array: Array, *shape: int) -> Array:
    """Return an array with zeros behind it, of this shape."""
    out = np.zeros(shape, np.float32)
    out[tuple(slice(n) for n in array.shape)] = array
    return out
