"""The way of the direction forecast around the network, in training."""

import dataclasses

import numpy as np
import pytest
import torch

from backtest.agent.actions import learned
from backtest.agent.aux_bypass import aux_to_q_dir_backward
from backtest.agent.bypass import bypass_gradient, bypass_loss, moments
from backtest.agent.dueling import Bypass
from backtest.agent.learner import C51Learner
from backtest.agent.loss import mixture_target
from backtest.agent.streams import Stage, generator
from backtest.config import Learner
from backtest.market.layout import AUX_SLOT
from tests.backtest.agent.scenario.cases import section
from tests.backtest.agent.test_learner import ATOMS, SMALL, V, batch
from tests.backtest.agent.test_network import network


def learner(bypass, weights=None, **changes) -> C51Learner:
    """The bypass's weights are `weights`, zero when None; every other parameter is not zero."""
    result = C51Learner(SMALL, Learner(**changes), generator(0, 0, Stage.WEIGHTS), bypass=bypass)
    alpha = np.zeros(4, np.float32) if weights is None else np.asarray(weights, np.float32)
    for net, seed in ((result.online, 1), (result.target, 2)):
        net.load_numpy(network(atoms=ATOMS, seed=seed).numpy_state() | {"alpha.weight": alpha})
    result.new_target_head()
    result.set_range(V)
    return result


def alpha(weights) -> Bypass:
    made = Bypass()
    made.weight.data.copy_(torch.tensor(weights))
    return made


def trained(subject):
    return {n: p.detach().numpy().copy() for n, p in subject.online.trained().items()}


@pytest.mark.parametrize("mode", ["detached", "both"])
def test_weights_of_zero_change_no_bit(mode):
    one, other = learner("off"), learner(mode)
    a, b = one.update(batch()), other.update(batch())
    assert torch.equal(a.figures, b.figures)
    assert torch.equal(a.error, b.error)
    before, after = trained(one), trained(other)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    # then its own loss has moved it, and it alone
    assert other.online.alpha.weight.any()
    assert not one.online.alpha.weight.any()
    assert one.bypass_moments() is None


def test_the_gradient_is_a_finite_difference():
    weight = torch.randn(4, dtype=torch.float64)
    state = torch.randn(9, 128, dtype=torch.float64, requires_grad=True)
    action, rows = torch.arange(9) % 4, torch.rand(9, dtype=torch.float64)
    values = torch.randn(9, dtype=torch.float64)
    goal = 2 * torch.randn(9, dtype=torch.float64)  # some beyond the threshold of Huber's loss

    def loss(weight, state, mode="both"):
        made = Bypass().double()
        del made.weight
        made.weight = weight
        return bypass_loss(made, state, action, values, goal, rows, mode)

    weight.requires_grad_()
    assert torch.autograd.gradcheck(loss, (weight, state))
    (in_state,) = torch.autograd.grad(loss(weight, state), [state])
    assert in_state[:, AUX_SLOT].all()
    in_state[:, AUX_SLOT] = 0
    assert not in_state.any()
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(loss(weight, state, "detached"), [state])


@pytest.mark.parametrize("mode", ["detached", "both"])
def test_the_gradient_of_an_update_is_that_of_the_loss(mode):
    made, state = alpha([0.3, -0.2, 0.5, 0.1]), torch.randn(50, 128)
    rest = torch.arange(50) % 4, torch.randn(50), 2 * torch.randn(50), torch.rand(50)
    (want,) = torch.autograd.grad(bypass_loss(made, state, *rest, mode), [made.weight])
    torch.testing.assert_close(bypass_gradient(made, state, *rest), want)


def test_the_gradient_is_that_of_the_kernels():
    made, rng = alpha([0.3, -0.2, 0.5, 0.1]), np.random.default_rng(0)
    state = torch.from_numpy(rng.normal(size=(50, 128)).astype(np.float32)).requires_grad_()
    action = torch.from_numpy(rng.integers(0, 4, 50))
    values, goal, weight = (
        torch.from_numpy(rng.normal(size=50).astype(np.float32)) for _ in range(3)
    )
    loss = bypass_loss(made, state, action, values, goal, weight.abs(), "both")
    in_weight, in_state = torch.autograd.grad(loss, [made.weight, state])
    centred = (made.weight - made.weight.mean()).detach().numpy()
    s = state.detach().numpy()[:, AUX_SLOT]
    error = values.numpy() + s * centred[action.numpy()] - goal.numpy()
    dq = np.zeros((50, 4), np.float32)
    dq[np.arange(50), action.numpy()] = weight.abs().numpy() * np.clip(error, -1, 1)
    dw, ds = aux_to_q_dir_backward(dq, centred, s, 1 / 50, np.zeros(50, np.float32))
    np.testing.assert_allclose(in_weight.numpy(), dw, atol=1e-6)
    np.testing.assert_allclose(in_state.numpy()[:, AUX_SLOT], ds, atol=1e-6)


def test_weights_are_centred_over_the_actions():
    state = batch().state
    made = alpha([0.5, 0.1, -0.2, 0.4])
    lifted = alpha([1.5, 1.1, 0.8, 1.4])
    torch.testing.assert_close(made(state), lifted(state))
    torch.testing.assert_close(made(state).sum(1), torch.zeros(48), atol=1e-6, rtol=0)
    torch.testing.assert_close(made(state)[:, 0], state[:, AUX_SLOT] * 0.3)


def test_values_of_direction_move_and_no_others():
    net = learner("detached", [1.0, 0.0, -1.0, 0.0]).online
    state = batch().state
    with torch.no_grad():
        q, silent = net.q_values(state), state.clone()
        silent[:, AUX_SLOT] = 0
        s = state[:, AUX_SLOT]
        # the mlp reads slot 121 as well: compare with the same network without the bypass
        net.alpha.weight.zero_()
        plain = net.q_values(state)
    torch.testing.assert_close(q[:, 0] - plain[:, 0], s, atol=1e-5, rtol=0)
    torch.testing.assert_close(q[:, 2] - plain[:, 2], -s, atol=1e-5, rtol=0)
    assert torch.equal(q[:, 4:], plain[:, 4:])


def test_the_target_is_selected_and_moved_by_the_bypass():
    z = torch.linspace(-3, 3, 7)
    online, critic = torch.zeros(2, 7, 7), torch.full((2, 7, 7), -50.0)
    critic[:, :, 3] = 50  # the critic has every action at 0
    online[:, 1, 6] = 1  # online prefers direction 1 by far less than the bypass gives to 2
    none, one = torch.zeros(2), torch.ones(2)
    lifts = torch.tensor([[0.0, 0, 9, 0], [0, 0, 0, 0]])
    moves = torch.tensor([[0.0, 0, 2, 0], [0, 0.6, 0, 0]])
    target = mixture_target(online, critic, none, one * 0.5, z, (0, 1), (lifts, moves))
    # the direction's half of the mixture moves by gamma times its bypass
    want = torch.tensor([0.5 * 2 / 2, 0.5 * 0.6 / 2])
    torch.testing.assert_close(target @ z, want)
    plain = mixture_target(online, critic, none, one * 0.5, z, (0, 1))
    still = mixture_target(online, critic, none, one * 0.5, z, (0, 1), (0 * lifts, 0 * moves))
    assert torch.equal(plain, still)


def test_targets_and_errors_of_the_learner_hold_the_bypass():
    weights = [0.6, 0.0, -0.6, 0.0]
    plain, subject, data = learner("off"), learner("detached", weights), batch()
    centred = subject.online.alpha.weight.detach()  # its mean is 0
    goal = subject.targets(data, subject.online.head(subject.branches)) @ subject.online.support
    with torch.no_grad():
        q = subject.online.q_values(data.next_state, subject.branches)
        critic = subject.target.q_values(data.next_state, subject.branches)
        best = torch.stack([q[:, :4].argmax(1), 4 + q[:, 4:].argmax(1)], dim=1)
        # values far inside the support are exact under the projection
        want = data.returns + data.bootstrap * critic.gather(1, best).mean(1)
    inside = want.abs() < 0.8
    torch.testing.assert_close(goal[inside], want[inside], atol=0.1, rtol=0)
    assert inside.float().mean() > 0.3
    q = subject.online.q_values(data.state, subject.branches).detach()
    taken = torch.stack([data.action[:, 0], 4 + data.action[:, 1]], dim=1)
    error = (goal[:, None] - q.gather(1, taken)).abs().sum(1)
    torch.testing.assert_close(subject.update(data).error, error, atol=1e-4, rtol=1e-4)
    assert not torch.equal(plain.update(data).error, error)
    assert centred.sum().abs() < 1e-6


def test_it_learns_what_the_network_cannot_see():
    """Returns follow the forecast; the scenario network reads slot 121 through the bypass alone."""
    sizes = section()
    subject = C51Learner(
        sizes,
        Learner(branches=("direction",), learning_rate=5e-3, gamma=0.5),
        generator(0, 0, Stage.WEIGHTS),
        bypass="detached",
    )
    subject.set_range(V)
    width = 128 + 3 * 4 * 6 + 3 * 4 + 3
    rng = np.random.default_rng(0)
    for step in range(150):
        state = torch.zeros(64, width)
        state[:, AUX_SLOT] = torch.from_numpy(rng.uniform(-1, 1, 64).astype(np.float32))
        action = torch.from_numpy(rng.integers(0, 4, (64, 4)))
        gain = torch.tensor([-0.5, 0.0, 0.5, 0.0])[action[:, 0]]
        data = dataclasses.replace(
            batch(64, seed=step),
            state=state,
            action=action,
            returns=gain * state[:, AUX_SLOT],
            bootstrap=torch.zeros(64),
            next_state=state,
            weight=torch.ones(64),
        )
        subject.update(data)
    weight = subject.online.alpha.weight.detach()
    np.testing.assert_allclose((weight - weight.mean()).numpy(), [-0.5, 0, 0.5, 0], atol=0.1)
    figures = subject.bypass_moments()
    assert figures.shape == (3, 4)
    assert np.array_equal(figures[0], weight.numpy())
    assert (figures[2] > 0).all()


def test_the_target_network_takes_the_weights_over():
    for changes, share in (({"target_every": 1}, 1.0), ({"target_every": 0, "tau": 0.25}, 0.25)):
        subject = learner("detached", **changes)
        subject.update(batch())
        online = subject.online.alpha.weight.detach()
        assert online.any()
        torch.testing.assert_close(subject.target.alpha.weight.detach(), share * online)
    subject = learner("detached", target_every=1000)
    subject.update(batch())
    assert not subject.target.alpha.weight.any()


def test_moments_before_the_first_update_are_zero():
    subject = learner("detached", [1.0, 2, 3, 4])
    assert subject.bypass_moments().tolist() == [[1, 2, 3, 4], [0] * 4, [0] * 4]
    assert moments(subject.online.alpha, subject.optimiser).shape == (3, 4)
    assert learned(("direction",)) == (0,)


def test_an_exploding_bypass_is_not_finite():
    subject = learner("detached")
    assert subject.finite
    subject.online.alpha.weight.data[0] = torch.inf
    assert not subject.finite
