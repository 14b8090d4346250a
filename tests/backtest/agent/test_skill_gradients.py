"""Pseudo-residuals against finite differences, sample by sample."""

import numpy as np
import pytest
import torch

from backtest.agent.skill_gradients import (
    Shift,
    advantage_objective,
    residuals,
    td_objective,
    watched,
)
from tests.backtest.agent.skilled import SIZES, mean_loss, network, states

BRANCHES = (0, 1)


@pytest.fixture(scope="module")
def net():
    return network()


def test_the_batch_mean_is_undone_exactly_once(net):
    """g of a row is the same alone and in any batch."""
    state, head = states(net), tuple(t.detach() for t in net.head())
    together = residuals(net, state, head, mean_loss)
    for row in range(len(state)):
        alone = residuals(net, state[row : row + 1], head, mean_loss)
        for name in ("task", "step"):
            assert np.allclose(together[name][row], alone[name][0], rtol=1e-4, atol=1e-6)


def test_g_is_minus_the_slope_of_the_loss(net):
    """Central differences of one row's loss along a random direction, in float64."""
    deep = network().double()
    state, head = states(net).double(), tuple(t.detach().double() for t in net.head())
    g = residuals(deep, state, head, mean_loss)
    rng = np.random.default_rng(2)
    task, step = (h.detach() for h in deep.contexts(state))
    for row in range(3):
        for name, h in (("task", task), ("step", step)):
            way = torch.zeros_like(h)
            way[row] = torch.from_numpy(rng.standard_normal(h.shape[1]))
            ends = []
            for sign in (1, -1):
                moved = {"task": task, "step": step, name: h + sign * 1e-6 * way}
                logits = deep.logits_from(moved["task"], moved["step"], state, head)
                ends.append(mean_loss(logits).item() * len(state))
            slope = (ends[0] - ends[1]) / 2e-6
            assert np.isclose(-(g[name][row] @ way[row].numpy()), slope, rtol=1e-5)


def test_the_gradient_is_taken_at_the_corrected_state(net):
    state, head = states(net), net.head()
    d = 0.3 * torch.ones(len(state), 3 * 3 * 4)
    there = residuals(net, state, head, mean_loss, {"task": d})
    task, step = (h.detach() for h in net.contexts(state))
    moved = (task + d).requires_grad_()
    mean_loss(net.logits_from(moved, step, state, head)).backward()
    assert np.array_equal(there["task"], -len(state) * moved.grad.numpy())
    assert not np.array_equal(there["task"], residuals(net, state, head, mean_loss)["task"])


def test_no_parameter_gets_a_gradient(net):
    net.zero_grad()
    residuals(net, states(net), net.head(), mean_loss)
    assert all(p.grad is None for p in net.parameters())


def test_the_td_residual_lowers_the_loss(net):
    """A small step along g brings every row's cross-entropy down."""
    state, head = states(net), tuple(t.detach() for t in net.head(BRANCHES))
    rng = np.random.default_rng(3)
    action = torch.from_numpy(rng.integers(0, 3, (len(state), 2)))
    target = torch.from_numpy(rng.dirichlet(np.ones(SIZES.atoms), len(state)).astype(np.float32))
    loss = td_objective(action, target, net.support, BRANCHES)
    g = residuals(net, state, head, loss)
    task, step = (h.detach() for h in net.contexts(state))
    before = loss(net.logits_from(task, step, state, head))
    for name in ("task", "step"):
        moved = {"task": task, "step": step}
        moved[name] = moved[name] + 0.05 * torch.from_numpy(g[name])
        assert loss(net.logits_from(moved["task"], moved["step"], state, head)) < before
    # uniform weights: the mean of the rows' own losses
    rows = [
        td_objective(action[i : i + 1], target[i : i + 1], net.support, BRANCHES)(
            net.logits(state[i : i + 1], head)
        )
        for i in range(len(state))
    ]
    assert torch.isclose(before, torch.stack(rows).mean())


def test_the_advantage_residual_by_hand():
    """Two atoms at -1 and 1: Q = 2p - 1 of the logit difference; only the bracket is detached."""
    support = torch.tensor([-1.0, 1.0])
    logits = torch.zeros(2, 4, 2, requires_grad=True)
    returns = torch.tensor([0.5, -0.25])
    loss = advantage_objective(torch.tensor([2, 0]), returns, support)
    loss(logits).backward()
    # dQ/dlogit of the upper atom is 2*p*(1 - p) = 1/2; bracket = R; a - mean: 3/4 and -1/4
    g = -2 * logits.grad[..., 1]
    want = [[-0.0625, -0.0625, 0.1875, -0.0625], [-0.09375, 0.03125, 0.03125, 0.03125]]
    assert torch.allclose(g, torch.tensor(want))


def test_the_bypass_moves_the_bracket_only():
    support = torch.tensor([-1.0, 1.0])
    bypass = torch.tensor([[0.5, -0.5, 0.3, 0.7]], requires_grad=True)  # mean 0.25
    logits = torch.zeros(1, 4, 2, requires_grad=True)
    loss = advantage_objective(torch.tensor([2]), torch.tensor([0.5]), support, bypass)
    loss(logits).backward()
    assert bypass.grad is None
    assert torch.allclose(-logits.grad[0, :, 1], 0.25 * 0.5 * torch.tensor([-1, -1, 3, -1]) / 4)


def test_shift_is_a_select_with_the_identity_for_jacobian():
    h = torch.tensor([[-0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    d = torch.tensor([[7.0, 7.0], [0.5, -0.5]], requires_grad=True)
    out = Shift.apply(h, d, torch.tensor([[False], [True]]))
    assert out.detach().numpy().tobytes() == np.array([[-0.0, 1], [2.5, 2.5]], "f4").tobytes()
    weight = torch.tensor([[-0.0, 2.0], [3.0, 4.0]])
    out.backward(weight)
    assert h.grad.numpy().tobytes() == weight.numpy().tobytes()
    assert d.grad is None


def test_a_state_of_frozen_weights_can_be_watched():
    h = watched(torch.ones(2, 2))
    (3 * h).sum().backward()
    assert (h.grad == 3).all()
