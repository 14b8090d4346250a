import numpy as np
import pytest
import torch

from backtest.agent.learner import C51Learner
from backtest.agent.loss import branch_loss, mixture_target
from backtest.agent.network import QNetwork, greedy
from backtest.agent.projection import project
from backtest.agent.replay import Batch
from backtest.agent.streams import Stage, generator
from backtest.agent.weights import support
from backtest.config import Learner, Network
from tests.backtest.agent.plain_c51 import PlainC51, plain_loss
from tests.backtest.agent.test_network import network

ATOMS, V = 21, 2.5
SMALL = Network(hidden=(24, 16), atoms=ATOMS)


def batch(rows=48, seed=3) -> Batch:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    ended = rng.random(rows) < 0.2
    return Batch(
        state=normal(rows, 128),
        action=torch.from_numpy(rng.integers(0, [4, 3, 3, 3], (rows, 4))),
        returns=normal(rows),
        bootstrap=torch.from_numpy(np.where(ended, 0, 0.512).astype(np.float32)),
        next_state=normal(rows, 128),
        weight=torch.from_numpy(rng.random(rows).astype(np.float32)),
    )


def learner(**changes) -> C51Learner:
    """A learner whose two networks differ and whose parameters are all away from zero."""
    result = C51Learner(SMALL, Learner(**changes), generator(0, 0, Stage.WEIGHTS))
    result.online.load_numpy(network(atoms=ATOMS, seed=1).numpy_state())
    result.target.load_numpy(network(atoms=ATOMS, seed=2).numpy_state())
    result.new_target_head()
    result.set_range(V)
    return result


def test_one_branch_is_plain_c51():
    subject = learner(branches=("direction",), learning_rate=1e-3, gradient_clip=0.5)
    plain = PlainC51(subject.online.numpy_state(), 4)
    critic = PlainC51(subject.target.numpy_state(), 4)
    adam = torch.optim.Adam(plain.parameters(), lr=1e-3, eps=1e-5, foreach=False)
    z = support(V, ATOMS).astype(np.float64)
    for step in range(4):
        data = batch(seed=step)
        update = subject.update(data)
        loss, td = plain_loss(
            plain,
            critic,
            data.state,
            data.action[:, 0].numpy(),
            data.returns.numpy(),
            data.bootstrap.numpy(),
            data.next_state,
            data.weight.numpy(),
            z,
        )
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        adam.step()
        assert update.figures[0].item() == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(update.error.numpy(), td.numpy(), atol=1e-5)
    got, want = subject.online.numpy_state(), {k: v.detach() for k, v in plain.layers.items()}
    pairs = [
        ("hidden.weight", "w2"),
        ("value.weight", "wv"),
        ("first.weight", "w1"),
        ("first.bias", "b1"),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(got[ours], want[theirs].numpy(), atol=2e-5)
    np.testing.assert_allclose(got["advantage.weight"][: 4 * ATOMS], want["wa"], atol=2e-5)


def two_branch_parts(subject, data):
    """Loss of direction + magnitude, one branch at a time on whole-network logits."""
    z = subject.online.support
    whole = subject.online.head()
    with torch.no_grad():
        now_online = subject.online.logits(data.next_state, whole)
        q = now_online.softmax(-1) @ z
        critic = subject.target.logits(data.next_state, subject.target.head()).softmax(-1)
        rows = torch.arange(len(data.returns))
        direction = q[:, :4].argmax(1)
        magnitude = 4 + q[:, 4:7].argmax(1)
        places = data.returns[:, None] + data.bootstrap[:, None] * z
        # projected one by one, then averaged
        goal = (
            project(places, critic[rows, direction], z)
            + project(places, critic[rows, magnitude], z)
        ) / 2
    logits = subject.online.logits(data.state, whole)
    log_p = logits.log_softmax(-1)
    losses, errors = [], []
    for column in (data.action[:, 0], 4 + data.action[:, 1]):
        losses.append(-(goal * log_p[rows, column]).sum(1))
        errors.append((goal @ z - log_p[rows, column].exp() @ z).abs())
    loss = (data.weight * (losses[0] + losses[1]) / 2).mean()
    return goal, loss, errors[0] + errors[1]


def test_two_branches_share_the_mean_of_their_projected_targets():
    subject, data = learner(), batch()
    goal, loss, error = two_branch_parts(subject, data)
    got = subject.targets(data, subject.online.head(subject.branches))
    torch.testing.assert_close(got, goal, atol=1e-6, rtol=1e-5)
    loss.backward()
    gradient = {n: p.grad.clone() for n, p in subject.online.trained().items()}
    subject.online.zero_grad()
    result = branch_loss(
        subject.online.logits(data.state, subject.online.head(subject.branches)),
        data.action[:, :2],
        got,
        data.weight,
        subject.online.support,
        subject.branches,
    )
    result.loss.backward()
    assert result.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(result.error, error.detach(), atol=1e-5, rtol=1e-5)
    for name, parameter in subject.online.trained().items():
        torch.testing.assert_close(parameter.grad, gradient[name], atol=1e-6, rtol=1e-4)


def test_the_online_network_selects_and_the_critic_evaluates():
    z = torch.tensor([-1.0, 0.0, 1.0])
    online, critic = torch.zeros(1, 4, 3), torch.full((1, 4, 3), -50.0)
    online[0, 2, 2] = 5  # online prefers action 2
    critic[0, :3, 0] = 50  # the critic has it at -1, and action 3 at +1
    critic[0, 3, 2] = 50
    one = torch.ones(1)
    target = mixture_target(online, critic, 0 * one, one, z, (0,))
    np.testing.assert_allclose(target[0].numpy(), [1, 0, 0], atol=1e-6)


def test_branches_that_are_not_learned_do_not_matter():
    subject, data = learner(), batch()
    before = subject.online.numpy_state()
    subject.update(data)
    after = subject.online.numpy_state()
    heads = before["advantage.weight"].reshape(13, ATOMS, -1)
    moved = (after["advantage.weight"].reshape(heads.shape) != heads).any((1, 2))
    assert moved.tolist() == [True] * 7 + [False] * 6
    # other actions in the fixed branches, other heads in both networks: the same update
    other = learner()
    changed = batch()
    changed.action[:, 2:] = 2 - changed.action[:, 2:]
    with torch.no_grad():
        other.online.advantage.weight[7 * ATOMS :] += 1
        other.target.advantage.weight[7 * ATOMS :] += 1
    other.new_target_head()
    other.update(changed)
    again = other.online.numpy_state()
    for name in ("first.weight", "hidden.weight", "value.weight"):
        assert np.array_equal(again[name], after[name])


def test_branches_need_not_be_neighbours():
    subject = learner(branches=("direction", "urgency"))
    assert subject.branches == (0, 3)
    before = subject.online.numpy_state()["advantage.weight"].reshape(13, -1)
    subject.update(batch())
    after = subject.online.numpy_state()["advantage.weight"].reshape(13, -1)
    moved = (after != before).any(1)
    assert moved.tolist() == [True] * 4 + [False] * 6 + [True] * 3


def test_the_target_is_copied_when_due():
    subject = learner(target_every=3)
    hashes = []
    for step in range(6):
        subject.update(batch(seed=step))
        same = subject.online.weights(V).weight_hash == subject.target.weights(V).weight_hash
        hashes.append(same)
    assert hashes == [False, False, True, False, False, True]


def test_the_target_follows_by_tau():
    subject = learner(target_every=0, tau=0.25)
    old = subject.target.numpy_state()["hidden.weight"]
    subject.update(batch())
    new = subject.online.numpy_state()["hidden.weight"]
    want = old + 0.25 * (new - old)
    np.testing.assert_allclose(subject.target.numpy_state()["hidden.weight"], want, atol=1e-6)


def test_the_cached_target_head_follows_the_target_network():
    for changes in ({"target_every": 1}, {"target_every": 0}):
        subject = learner(**changes)
        subject.update(batch())
        for ours, fresh in zip(
            subject._target_head, subject.target.head(subject.branches), strict=True
        ):
            assert torch.equal(ours, fresh)


def test_updates_fit_a_fixed_batch():
    subject, data = learner(learning_rate=3e-3, target_every=1000), batch()
    updates = [subject.update(data) for _ in range(120)]
    assert updates[-1].figures[0] < updates[0].figures[0]  # down to the targets' own entropy
    assert updates[-1].error.mean() < 0.15 * updates[0].error.mean()


def test_gradients_are_clipped():
    subject = learner(gradient_clip=1e-3)
    norm = subject.update(batch()).figures[3].item()
    clipped = sum((p.grad**2).sum() for p in subject.online.trained().values()) ** 0.5
    assert norm > 1e-2
    assert clipped.item() == pytest.approx(1e-3, rel=1e-3)


def test_widening_carries_the_policy_over():
    subject = learner()
    x = batch()
    before = subject.online.q_values(x.state, subject.branches)
    subject.widen_range(2.0)
    assert subject.v_max == 2 * V
    assert subject.online.support[-1] == subject.target.support[-1] == 2 * V
    assert subject.target.weights(1.0).weight_hash == subject.online.weights(1.0).weight_hash
    after = subject.online.q_values(x.state, subject.branches)
    agree = greedy(before, subject.branches) == greedy(after, subject.branches)
    assert agree.float().mean() > 0.6  # these distributions reach far into the edges
    subject.update(x)


def test_both_networks_start_equal_and_only_one_learns():
    subject = C51Learner(SMALL, Learner(), generator(0, 0, Stage.WEIGHTS))
    assert subject.online.weights(1.0).weight_hash == subject.target.weights(1.0).weight_hash
    assert not any(p.requires_grad for p in subject.target.parameters())
    assert isinstance(subject.online, QNetwork)
