"""Decisions in the order of time; residuals against finite differences of the scalar losses."""

import copy

import numpy as np
import pytest
import torch

from backtest.agent.dueling import expected, greedy, lift
from backtest.agent.experience import Experience
from backtest.agent.skills.decisions import Decisions
from backtest.agent.weights import assemble
from backtest.config import Learner, Network
from backtest.market.layout import End
from tests.backtest.agent.skilled import network

SIZES = Network(kind="scenario", scenarios=2, horizon=3, latent=4, hidden=(16, 16), atoms=11)
FIRST, BARS, STEPS = 50, 40, 12
SETTINGS = Learner(gamma=0.5, n_step=3)
BRANCHES = (0, 1)
NET = network(sizes=SIZES)
with torch.no_grad():
    NET.alpha.weight.copy_(torch.tensor([0.2, -0.1, 0.3, 0.0]))
DOUBLE = copy.deepcopy(NET).double()
HEAD = tuple(part.detach().double() for part in NET.head(BRANCHES))
RNG = np.random.default_rng(0)
BAR_PART = RNG.standard_normal((BARS, 115)).astype(np.float32)


def played():
    """Two episodes: one is ruined in its 7th step, the other begins where it stopped."""
    end = np.full((STEPS, 2), End.RUNNING, np.uint8)
    end[6, 0], end[7:, 0], end[-1, 1] = End.TERMINATED, End.DEAD, End.TRUNCATED
    action = np.zeros((STEPS, 2, 4), np.uint8)
    action[..., 0], action[..., 1] = RNG.integers(0, 4, (STEPS, 2)), RNG.integers(0, 3, (STEPS, 2))
    reward = RNG.normal(0, 0.3, (STEPS, 2)).astype(np.float32)
    portfolio = RNG.standard_normal((STEPS + 1, 2, 13)).astype(np.float32)
    start = np.array([FIRST, FIRST + 7], np.int32)
    return Experience(start, action, reward, end, portfolio, None, np.zeros_like(reward))


PAST = played()
ALL = np.arange(7 + STEPS)


def decisions(residual="advantage"):
    return Decisions(NET, BAR_PART, FIRST, PAST, SETTINGS, residual)


def state_of(episode, step):
    """The network's input [1, 128 + C] before a decision, or after the one before it."""
    bar = PAST.start[episode] + step - FIRST
    row = torch.from_numpy(assemble(BAR_PART[[bar]], PAST.portfolio[step, [episode]]))
    return torch.cat([row, NET.context(row)], dim=1)


def test_episode_by_episode_in_the_order_of_time():
    found = decisions()
    assert found.episode.tolist() == [0] * 7 + [1] * STEPS
    assert found.step.tolist() == [*range(7), *range(STEPS)]
    batch = found.batch(ALL)
    for row, (episode, step) in enumerate(zip(found.episode, found.step, strict=True)):
        assert torch.allclose(batch.state[row], state_of(episode, step)[0], atol=1e-6)
        assert batch.action[row].tolist() == PAST.action[step, episode].tolist()
    # a ruin and the restart behind it: bars follow one another
    bars = PAST.start[found.episode] + found.step
    assert bars.tolist() == list(range(FIRST, FIRST + 7 + STEPS))
    blocks = list(found.blocks(ALL, 8))
    assert [len(rows) for rows in blocks] == [8, 8, 3]
    assert np.concatenate(blocks).tolist() == ALL.tolist()


def test_five_rewards_without_a_bootstrap_or_a_ruin_within_them():
    found = decisions()
    ruin, rest = PAST.reward[:, 0], PAST.reward[:, 1]
    half = 0.5 ** np.arange(5)
    # rows 2 to 6 of the first episode end in the ruin: what they saw is all there will ever be
    assert found.complete.tolist() == [True] * 7 + [True] * (STEPS - 4) + [False] * 4
    assert float(found._returns[0]) == pytest.approx(half @ ruin[:5])
    assert float(found._returns[5]) == pytest.approx(ruin[5] + 0.5 * ruin[6])
    assert float(found._returns[7 + 3]) == pytest.approx(half @ rest[3:8])
    # what continues beyond a truncation bootstraps there
    assert decisions("td").complete.all()


def scalar_loss(found, row, added):
    """The loss of one decision as a function of both contexts, and where it is looked at.

    Everything in float64; target and bracket are fixed.
    """
    episode, step = int(found.episode[row]), int(found.step[row])
    state, action = state_of(episode, step).double(), PAST.action[step, episode]

    def logits(task, move):
        return DOUBLE.logits_from(task, move, state, HEAD)[0]

    def directions(task, move):
        return expected(logits(task, move)[:4], DOUBLE.support) + DOUBLE.alpha(state)[0]

    with torch.no_grad():
        at = dict(zip(("task", "step"), DOUBLE.contexts(state), strict=True))
        for name, d in added.items():
            at[name] = at[name] + torch.from_numpy(d).double()
        target = target_of(episode, step)
        bracket = float(found._returns[row]) - directions(at["task"], at["step"]).mean()

    def cross_entropy(task, move):
        rows = (action[0], 4 + action[1])
        return -sum(target @ logits(task, move)[r].log_softmax(-1) for r in rows) / 2

    def advantage(task, move):
        q = directions(task, move)
        return -bracket * (q[action[0]] - q.mean())

    return (cross_entropy if found.residual == "td" else advantage), at


def target_of(episode, step):
    """The projected mixture of both branches' greedy actions three steps on, atom by atom."""
    stop = min(step + 3, 7 if episode == 0 else STEPS)
    value = sum(0.5**i * float(PAST.reward[step + i, episode]) for i in range(stop - step))
    ruined = PAST.end[stop - 1, episode] == End.TERMINATED
    discount = 0.0 if ruined else 0.5 ** (stop - step)
    after = state_of(episode, stop).double()
    logits, addition = DOUBLE.logits(after, HEAD), DOUBLE.alpha(after)
    action = greedy(lift(expected(logits, DOUBLE.support), addition), BRANCHES)[0]
    mass = logits[0, [int(action[0]), 4 + int(action[1])]].softmax(-1).mean(0)
    shift = float(addition[0, action[0]]) / 2
    low, high, atoms = float(DOUBLE.support[0]), float(DOUBLE.support[-1]), len(mass)
    target = torch.zeros(atoms, dtype=torch.float64)
    for p, z in zip(mass.tolist(), DOUBLE.support.tolist(), strict=True):
        place = min(max(value + discount * (z + shift), low), high)
        at = (place - low) / (high - low) * (atoms - 1)
        below = min(int(at), atoms - 2)
        target[below] += p * (below + 1 - at)
        target[below + 1] += p * (at - below)
    return target


@torch.no_grad()
def slope(loss, at, name, place, width=1e-4):
    """The central difference of the loss at one place of one context."""
    values = []
    for sign in (1, -1):
        moved = {n: h.clone() for n, h in at.items()}
        moved[name][0, place] += sign * width
        values.append(float(loss(moved["task"], moved["step"])))
    return (values[0] - values[1]) / (2 * width)


@pytest.mark.parametrize("residual", ["advantage", "td"])
@pytest.mark.parametrize("bank", [None, "task", "step"])
def test_residuals_are_finite_differences_of_the_loss(residual, bank):
    """At the state as it is, and at a correction of one bank: same action, same target."""
    found, rows, places = decisions(residual), np.array([2, 6, 9, 14]), [0, 5, 11, 17, 23]
    shift = np.random.default_rng(1).normal(0, 0.3, (4, 24)).astype(np.float32)
    g = found.gradients(rows, None if bank is None else {bank: shift})
    for i, row in enumerate(rows):
        loss, at = scalar_loss(found, row, {} if bank is None else {bank: shift[i]})
        for name in ("task", "step"):
            want = [-slope(loss, at, name, place) for place in places]
            np.testing.assert_allclose(g[name][i, places], want, rtol=2e-3, atol=2e-6)
            assert np.abs(want).max() > 1e-5


def test_rows_do_not_depend_on_those_beside_them():
    found = decisions()
    together, alone = found.gradients(ALL), found.gradients(ALL[4:5])
    for name in ("task", "step"):
        np.testing.assert_allclose(together[name][4], alone[name][0], rtol=1e-4, atol=1e-7)
    task, step = found.contexts(ALL)
    want = [h.detach().numpy() for h in NET.contexts(found.batch(ALL).state)]
    assert np.array_equal(task, want[0]) and np.array_equal(step, want[1])


def test_nothing_of_the_network_changes():
    before = {name: array.copy() for name, array in NET.numpy_state().items()}
    decisions("td").gradients(ALL)
    assert all(np.array_equal(array, before[name]) for name, array in NET.numpy_state().items())
    assert all(p.grad is None for p in NET.parameters())
