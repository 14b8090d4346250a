"""The flat arrays of a scenario policy and its NumPy forward pass, stage by stage."""

import dataclasses

import numpy as np
import pytest
import torch

from backtest.agent.bank.snapshot import Snapshot
from backtest.agent.scenario_layout import BALANCE, CALENDAR, GROUPS, POSITION, scenario_shapes
from backtest.agent.scenario_weights import (
    attend,
    bar_context,
    correct,
    forward,
    step_context,
    task_context,
    tokens,
)
from backtest.agent.weights import check_shapes
from backtest.market.layout import PORTFOLIO_SLOTS
from tests.backtest.agent.scenario.cases import SIZES, V_MAX, network, rows, section, states


def test_a_query_attends_to_its_best_tokens_and_the_first_of_equals():
    sizes = section(scenarios=1, horizon=4, latent=2, top_k=2)
    weights = network(sizes).weights(V_MAX)
    task = np.zeros((1, 6), np.float32)
    task[0, :2] = [1, 0]
    task[0, 2:4] = [0, 1]  # equal products with every token: the first two are kept
    keys = np.array([[[[1, 5], [3, 5], [2, 5], [3, 5]]]], np.float32)
    out = attend(weights, task, keys, np.ones((1, 1), np.float32)).reshape(3, 2)
    assert out[0].tolist() == [3, 5]  # tokens 1 and 3, equal shares
    assert out[1].tolist() == [2, 5]  # tokens 0 and 1
    assert out[2].tolist() == [2, 5]


def test_the_queries_read_the_whole_portfolio_and_the_calendar():
    assert sorted(GROUPS["balance"] + GROUPS["position"]) == list(PORTFOLIO_SLOTS)
    assert not set(GROUPS["calendar"]) & set(PORTFOLIO_SLOTS)
    weights = network().weights(V_MAX)
    bar_part, portfolio = rows(1)
    base = task_context(weights, bar_part[:, 0], portfolio[:, 0]).reshape(3, -1)
    for group, places, part in (
        (0, BALANCE, portfolio),
        (1, POSITION, portfolio),
        (2, CALENDAR, bar_part),
    ):
        for place in range(part.shape[-1]):
            part[..., place] += 1
            moved = task_context(weights, bar_part[:, 0], portfolio[:, 0]).reshape(3, -1)
            assert (moved != base).any(1)[group] == (place in places)
            part[..., place] -= 1
            base = task_context(weights, bar_part[:, 0], portfolio[:, 0]).reshape(3, -1)


def test_tokens_are_normalised_and_carry_their_place():
    weights = network().weights(V_MAX)
    plain = dataclasses.replace(
        weights, norm_w=np.ones(6, np.float32), norm_b=np.zeros(6, np.float32)
    )
    context = bar_context(plain, rows()[0][:, 0])
    keys = tokens(plain, step_context(plain, context), context.log_u) - plain.pe
    np.testing.assert_allclose(keys.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(keys.var(-1), 1, atol=1e-3)
    assert plain.pe[0].tolist() == [0, 1, 0, 1, 0, 1]


def snapshot(h, slot_of, shift) -> Snapshot:
    """A bank of the contexts of some rows as keys; `slot_of` names them."""
    keys = h[slot_of]
    return Snapshot(
        center=np.zeros(h.shape[1], np.float32),
        keys=keys,
        norms=np.sqrt((keys.astype(np.float64) ** 2).sum(1)).astype(np.float32),
        eligible=np.ones(len(keys), np.uint8),
        bonus=np.zeros(len(keys), np.float32),
        disagree=np.zeros((len(keys), len(keys)), np.uint8),
        shift=shift,
        threshold=np.float32(0.999),
    )


@pytest.mark.parametrize("bank", ["task", "step"])
def test_skills_move_their_own_rows_and_no_other(bank):
    net = network()
    bar_part, portfolio = rows()
    x, weights = states(net, bar_part, portfolio), net.weights(V_MAX)
    contexts = dict(zip(("task", "step"), net.contexts(x), strict=True))
    h = contexts[bank].detach().numpy()
    shift = np.random.default_rng(0).normal(size=(2, h.shape[1])).astype(np.float32)
    skills = snapshot(h, [5, 30], shift)
    plain = forward(weights, bar_part[:, 0], portfolio[:, 0])
    with_skills = forward(weights, bar_part[:, 0], portfolio[:, 0], **{bank: skills})
    moved = np.flatnonzero((plain != with_skills).any(1))
    assert moved.tolist() == [5, 30]
    contexts[bank] = torch.from_numpy(correct(skills, h))
    logits = net.logits_from(contexts["task"], contexts["step"], x, net.head())
    q = logits.softmax(-1) @ net.support
    q[:, :4] += net.alpha(x)
    np.testing.assert_allclose(with_skills, q.detach().numpy(), rtol=1e-5, atol=1e-5)
    far = dataclasses.replace(skills, threshold=np.float32(2))
    again = forward(weights, bar_part[:, 0], portfolio[:, 0], **{bank: far})
    assert np.array_equal(again, plain)


def test_a_step_bank_may_be_searched_by_market_features():
    net = network()
    bar_part, portfolio = rows()
    features = np.ascontiguousarray(bar_part[:, 0, :42])
    shift = np.ones((1, 3 * 4 * 6), np.float32)
    skills = snapshot(features, [7], shift)
    weights = net.weights(V_MAX)
    plain = forward(weights, bar_part[:, 0], portfolio[:, 0])
    moved = forward(weights, bar_part[:, 0], portfolio[:, 0], step=skills) != plain
    assert np.flatnonzero(moved.any(1)).tolist() == [7]


def test_kernels_get_flat_arrays_and_the_hash_sees_every_one():
    weights = network(section(top_k=1)).weights(V_MAX)
    seen = {weights.weight_hash}
    for field in dataclasses.fields(weights):
        value = getattr(weights, field.name)
        if field.name == "top_k":
            changed = value + 1
        else:
            assert value.dtype == np.float32, field.name
            assert value.flags.c_contiguous, field.name
            changed = value.copy()
            changed.flat[-1] += 1
        seen.add(dataclasses.replace(weights, **{field.name: changed}).weight_hash)
    assert len(seen) == 1 + len(dataclasses.fields(weights))
    assert (weights.scenarios, weights.horizon, weights.latent) == (3, 4, 6)
    assert (weights.stack_size, weights.task_dim, weights.step_dim) == (1, 54, 72)
    assert abs(weights.alpha.sum()) < 1e-6


def test_shapes_are_known_without_torch():
    for changes in SIZES:
        sizes = section(**changes)
        state = network(sizes).numpy_state()
        assert scenario_shapes(sizes) == {name: array.shape for name, array in state.items()}
        assert check_shapes(state, scenario_shapes(sizes)) == []
