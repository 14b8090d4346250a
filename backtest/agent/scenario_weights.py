"""A scenario policy as flat float32 arrays, as kernels read it, and its forward pass in NumPy.

`forward` is the oracle of the OpenCL policy; each function before it is one stage, and a stage that
depends on the bar alone takes no portfolio. Sizes and flat orders: `scenario_layout`. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backtest.agent.bank.retrieval import apply_rows, retrieve_rows
from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.scenario_layout import BALANCE, CALENDAR, POSITION, positions
from backtest.agent.weights import (
    AUX_COLUMN,
    Flat,
    Floats,
    State,
    action_values,
    bypass,
    centred,
    fold_dueling,
    support,
)
from backtest.config import Network

NORM_EPS = np.float32(1e-5)
ZERO = np.float32(0)


@dataclass(frozen=True)
class ScenarioWeights(Flat):
    """One policy for one kernel argument each; arrays float32, C order, rows are outputs.

    F is the forecaster's hidden width.
    """

    F1: Floats  # [F, 112]
    bf1: Floats  # [F]
    F2: Floats  # [F, F]
    bf2: Floats  # [F]
    F_latent: Floats  # [S*H*L, F]
    bf_latent: Floats  # [S*H*L]
    F_log_u: Floats  # [L], reads log-uncertainty from a latent
    bf_log_u: Floats  # [1]
    F_scenario: Floats  # [S, F], logits of the scenario weights
    bf_scenario: Floats  # [S]
    Wq_balance: Floats  # [S*L, 6], columns in the order of BALANCE
    bq_balance: Floats  # [S*L]
    Wq_position: Floats  # [S*L, 7], columns in the order of POSITION
    bq_position: Floats  # [S*L]
    Wq_calendar: Floats  # [S*L, 6], columns in the order of CALENDAR
    bq_calendar: Floats  # [S*L]
    Wz: Floats  # [L, L]
    bz: Floats  # [L]
    Wu: Floats  # [L]
    bu: Floats  # [L]
    norm_w: Floats  # [L]
    norm_b: Floats  # [L]
    pe: Floats  # [H, L], sinusoidal positions
    W1: Floats  # [h1, stack*3*S*L], newest interpretation first
    b1: Floats  # [h1]
    W2: Floats  # [h2, h1]
    b2: Floats  # [h2]
    W_head: Floats  # [13*atoms, h2], row = action*atoms + atom, dueling folded in
    b_head: Floats  # [13*atoms]
    z: Floats  # [atoms], the support of the return, reward units
    alpha: Floats  # [4], centred; times slot 121 it adds to the direction values
    top_k: int  # tokens a query attends to; 0 = all

    @property
    def scenarios(self) -> int:
        """S, components of the forecast."""
        return len(self.bf_scenario)

    @property
    def horizon(self) -> int:
        """H, bars ahead."""
        return len(self.pe)

    @property
    def latent(self) -> int:
        """L, width of one latent."""
        return len(self.bz)

    @property
    def stack_size(self) -> int:
        """Interpretations the trunk sees, the current one included."""
        return int(self.W1.shape[1] // self.task_dim)

    @property
    def task_dim(self) -> int:
        """Width of the task context and of an interpretation, 3*S*L."""
        return 3 * self.scenarios * self.latent

    @property
    def step_dim(self) -> int:
        """Width of the step context, S*H*L."""
        return len(self.bf_latent)


def export_scenario(state: State, network: Network, v_max: float) -> ScenarioWeights:
    """Return the kernel's view of a network's parameters.

    Args:
        state: parameters of `backtest.agent.scenario.network.ScenarioNetwork` by name.
        network: its sizes.
        v_max: upper end of the symmetric support, reward units.
    """
    head, bias = fold_dueling(state)
    forecaster = {
        name.removeprefix("forecaster."): array
        for name, array in state.items()
        if name.startswith("forecaster.")
    }
    return ScenarioWeights(
        F1=forecaster["first.weight"],
        bf1=forecaster["first.bias"],
        F2=forecaster["second.weight"],
        bf2=forecaster["second.bias"],
        F_latent=forecaster["latent.weight"],
        bf_latent=forecaster["latent.bias"],
        F_log_u=forecaster["log_u.weight"][0],
        bf_log_u=forecaster["log_u.bias"],
        F_scenario=forecaster["scenario.weight"],
        bf_scenario=forecaster["scenario.bias"],
        Wq_balance=state["query.balance.weight"],
        bq_balance=state["query.balance.bias"],
        Wq_position=state["query.position.weight"],
        bq_position=state["query.position.bias"],
        Wq_calendar=state["query.calendar.weight"],
        bq_calendar=state["query.calendar.bias"],
        Wz=state["latent.weight"],
        bz=state["latent.bias"],
        Wu=state["uncertainty.weight"][:, 0],
        bu=state["uncertainty.bias"],
        norm_w=state["norm.weight"],
        norm_b=state["norm.bias"],
        pe=positions(network.horizon, network.latent),
        W1=state["first.weight"],
        b1=state["first.bias"],
        W2=state["hidden.weight"],
        b2=state["hidden.bias"],
        W_head=head,
        b_head=bias,
        z=support(v_max, network.atoms),
        alpha=centred(state["alpha.weight"]),
        top_k=network.top_k,
    )


class BarContext(NamedTuple):
    """What the frozen forecaster says of B bars."""

    latent: Floats  # [B, S, H, L]
    log_u: Floats  # [B, S, H], log-uncertainty
    scenario: Floats  # [B, S], weights that sum to 1


def bar_context(weights: ScenarioWeights, bar_part: Floats) -> BarContext:
    """Return the forecast of each bar from its state slots float32[B, 115]."""
    inputs = bar_part[:, : weights.F1.shape[1]]
    hidden: Floats
    hidden = np.maximum(normalised(inputs @ weights.F1.T + weights.bf1), ZERO)
    hidden = np.maximum(normalised(hidden @ weights.F2.T + weights.bf2), ZERO)
    latent = (hidden @ weights.F_latent.T + weights.bf_latent).reshape(
        len(bar_part), weights.scenarios, weights.horizon, weights.latent
    )
    log_u: Floats = np.asarray(latent @ weights.F_log_u + weights.bf_log_u, np.float32)
    return BarContext(latent, log_u, softmax(hidden @ weights.F_scenario.T + weights.bf_scenario))


def step_context(weights: ScenarioWeights, context: BarContext) -> Floats:
    """Return the step context float32[B, S*H*L]: Wz z + bz per element, of the bar alone."""
    projected: Floats = context.latent @ weights.Wz.T + weights.bz
    return projected.reshape(len(projected), -1)


def tokens(weights: ScenarioWeights, step: Floats, log_u: Floats) -> Floats:
    """Return keys and values [B, S, H, L] from a step context [B, S*H*L], corrected or not.

    LayerNorm (Ba 2016, biased variance) over L of step + Wu logU + bu, plus the position.
    """
    sum_ = step.reshape(*log_u.shape, weights.latent) + (log_u[..., None] * weights.Wu + weights.bu)
    result: Floats = normalised(sum_) * weights.norm_w + weights.norm_b + weights.pe
    return result


def normalised(x: Floats) -> Floats:
    """Return x [..., n] with mean 0 and deviation 1 in each row."""
    middle = x - x.mean(-1, keepdims=True, dtype=np.float32)
    variance = (middle * middle).mean(-1, keepdims=True, dtype=np.float32)
    result: Floats = np.asarray(middle / np.sqrt(variance + NORM_EPS), np.float32)
    return result


def task_context(weights: ScenarioWeights, bar_part: Floats, portfolio: Floats) -> Floats:
    """Return the task context float32[B, 3*S*L]: the queries of balance, position, calendar."""
    return np.concatenate(
        [
            portfolio[:, list(BALANCE)] @ weights.Wq_balance.T + weights.bq_balance,
            portfolio[:, list(POSITION)] @ weights.Wq_position.T + weights.bq_position,
            bar_part[:, list(CALENDAR)] @ weights.Wq_calendar.T + weights.bq_calendar,
        ],
        axis=1,
    )


def attend(weights: ScenarioWeights, task: Floats, keys: Floats, scenario: Floats) -> Floats:
    """Return the interpretation float32[B, 3*S*L] of tokens by queries.

    Args:
        weights: the policy.
        task: [B, 3*S*L] queries, corrected or not.
        keys: [B, S, H, L] of `tokens`.
        scenario: [B, S] weights of the scenarios.
    """
    batch, scenarios, _, latent = keys.shape
    query = task.reshape(batch, 3, scenarios, latent)
    score = np.einsum("bqsl,bshl->bqsh", query, keys) / np.sqrt(np.float32(latent))
    share = softmax(best(score, weights.top_k))
    out: Floats = np.einsum("bqsh,bshl->bqsl", share, keys) * scenario[:, None, :, None]
    return out.reshape(batch, -1)


def best(score: Floats, k: int) -> Floats:
    """Return scores [..., H] with all but the k best of each row at -inf; ties keep the first."""
    if k in (0, score.shape[-1]):
        return score
    order = np.argsort(-score, axis=-1, kind="stable")[..., :k]
    kept = np.full_like(score, -np.inf)
    np.put_along_axis(kept, order, np.take_along_axis(score, order, -1), -1)
    return kept


def softmax(x: Floats) -> Floats:
    """Return exp(x) over its sum along the last axis."""
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    scaled: Floats = p / p.sum(axis=-1, keepdims=True)
    return scaled


def correct(snapshot: Snapshot | None, hidden: Floats, key: Floats | None = None) -> Floats:
    """Return hidden states [B, D] with the retrieved corrections; rows without a hit keep theirs.

    Args:
        snapshot: the bank; None for none.
        hidden: [B, D], what is corrected.
        key: [B, K], what is searched by; None = `hidden`.
    """
    if snapshot is None:
        return hidden
    return apply_rows(snapshot, hidden, retrieve_rows(snapshot, hidden if key is None else key))


def step_key(snapshot: Snapshot, bar_part: Floats, step: Floats) -> Floats:
    """Return what a step bank is searched by: the step context, or as many market features."""
    width = snapshot.keys.shape[1]
    return step if width == step.shape[1] else np.ascontiguousarray(bar_part[:, :width])


def interpret(
    weights: ScenarioWeights,
    bar_part: Floats,
    portfolio: Floats,
    *,
    task: Snapshot | None = None,
    step: Snapshot | None = None,
) -> Floats:
    """Return the interpretation float32[B, 3*S*L] of each row; arguments as `forward`'s."""
    context = bar_context(weights, bar_part)
    hidden = step_context(weights, context)
    if step is not None:
        hidden = correct(step, hidden, step_key(step, bar_part, hidden))
    queries = correct(task, task_context(weights, bar_part, portfolio))
    return attend(weights, queries, tokens(weights, hidden, context.log_u), context.scenario)


def forward(
    weights: ScenarioWeights,
    bar_part: Floats,
    portfolio: Floats,
    *,
    task: Snapshot | None = None,
    step: Snapshot | None = None,
    history: Floats | None = None,
) -> Floats:
    """Return the 13 action values of each row, float32[B, 13].

    Args:
        weights: the policy.
        bar_part: float32[B, 115], the state's BAR_SLOTS.
        portfolio: float32[B, 13], the state's PORTFOLIO_SLOTS.
        task: skills on the task context.
        step: skills on the step context.
        history: [B, stack_size - 1, 3*S*L], `interpret` of the episode's earlier steps, newest
            first, 0 before its start; None = all of them 0.
    """
    seen = interpret(weights, bar_part, portfolio, task=task, step=step)
    older = weights.stack_size - 1
    if older:
        past = np.zeros((len(seen), older * weights.task_dim), np.float32)
        if history is not None:
            past[:] = history.reshape(past.shape)
        seen = np.concatenate([seen, past], axis=1)
    first = np.maximum(seen @ weights.W1.T + weights.b1, ZERO)
    second = np.maximum(first @ weights.W2.T + weights.b2, ZERO)
    values = action_values(second, weights.W_head, weights.b_head, weights.z)
    return bypass(values, weights.alpha, bar_part[:, AUX_COLUMN])
