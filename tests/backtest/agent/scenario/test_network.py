import numpy as np
import pytest
import torch

from backtest.agent import kinds
from backtest.agent.kinds import export_weights, shapes
from backtest.agent.network import QNetwork, build
from backtest.agent.random_policy import random_scenario
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent.scenario_layout import GROUPS
from backtest.agent.scenario_weights import (
    bar_context,
    forward,
    interpret,
    step_context,
    task_context,
)
from backtest.agent.streams import Stage, generator
from backtest.market.layout import AUX_SLOT, BAR_SLOTS, PORTFOLIO_SLOTS
from tests.backtest.agent.scenario.cases import SIZES, V_MAX, network, rows, section, states


def definition(state, sizes, x):
    """The interpretation of one row by the definition: float64, loops, no NumPy tricks.

    x holds the 128 slots by number.
    """
    p = {name: value.astype(np.float64) for name, value in state.items()}

    def linear(name, v):
        return p[f"{name}.weight"] @ v + p[f"{name}.bias"]

    s_, h_, l_ = sizes.scenarios, sizes.horizon, sizes.latent

    def normed(v):
        return (v - v.mean()) / np.sqrt(v.var() + 1e-5)

    hidden = np.maximum(normed(linear("forecaster.first", x[:112])), 0)
    hidden = np.maximum(normed(linear("forecaster.second", hidden)), 0)
    z = linear("forecaster.latent", hidden).reshape(s_, h_, l_)
    weight = np.exp(linear("forecaster.scenario", hidden))
    weight /= weight.sum()
    queries = [linear(f"query.{g}", x[list(slots)]).reshape(s_, l_) for g, slots in GROUPS.items()]
    out = np.zeros((3, s_, l_))
    for s in range(s_):
        kept = []
        for h in range(h_):
            log_u = linear("forecaster.log_u", z[s, h])
            v = linear("latent", z[s, h]) + linear("uncertainty", log_u)
            v = (v - v.mean()) / np.sqrt(v.var() + 1e-5)
            place = [
                (np.cos if i % 2 else np.sin)(h / 10000 ** ((i - i % 2) / l_)) for i in range(l_)
            ]
            kept.append(v * p["norm.weight"] + p["norm.bias"] + place)
        for g in range(3):
            score = np.array([queries[g][s] @ t for t in kept]) / np.sqrt(l_)
            if sizes.top_k:
                score[np.argsort(-score, kind="stable")[sizes.top_k :]] = -np.inf
            share = np.exp(score - score.max())
            share /= share.sum()
            out[g, s] = weight[s] * sum(a * t for a, t in zip(share, kept, strict=True))
    return out.ravel()


def values_by_definition(net, bar_part, portfolio):
    """Q of every row from `definition`, the trunk and the textbook dueling head."""
    state, sizes = net.numpy_state(), net.network
    p = {name: value.astype(np.float64) for name, value in state.items()}
    q = []
    for bars, held in zip(bar_part, portfolio, strict=True):
        seen = []
        for bar, account in zip(bars, held, strict=True):
            x = np.zeros(128)
            x[list(BAR_SLOTS)], x[list(PORTFOLIO_SLOTS)] = bar, account
            seen.append(definition(state, sizes, x))
        h = np.maximum(p["first.weight"] @ np.concatenate(seen) + p["first.bias"], 0)
        h = np.maximum(p["hidden.weight"] @ h + p["hidden.bias"], 0)
        value = p["value.weight"] @ h + p["value.bias"]
        advantage = (p["advantage.weight"] @ h + p["advantage.bias"]).reshape(13, -1)
        row = []
        for part in np.split(advantage, [4, 7, 10]):
            density = np.exp(value + part - part.mean(0))
            row.extend(density @ np.linspace(-V_MAX, V_MAX, sizes.atoms) / density.sum(1))
        alpha = p["alpha.weight"]
        row[:4] = row[:4] + bars[0, BAR_SLOTS.index(AUX_SLOT)] * (alpha - alpha.mean())
        q.append(row)
    return np.array(q)


def oracle(weights, bar_part, portfolio):
    """`forward` with the earlier rows of a stack as its history."""
    stack = bar_part.shape[1]
    past = [interpret(weights, bar_part[:, j], portfolio[:, j]) for j in range(1, stack)]
    history = np.stack(past, axis=1) if past else None
    return forward(weights, bar_part[:, 0], portfolio[:, 0], history=history)


@pytest.mark.parametrize("changes", [*SIZES, {"scenarios": 8, "horizon": 6, "latent": 8}])
def test_torch_numpy_and_the_definition_agree(changes):
    net = network(section(**changes))
    bar_part, portfolio = rows(12, stack=net.network.stack_size)
    want = values_by_definition(net, bar_part, portfolio)
    with torch.no_grad():
        torch_q = net.q_values(states(net, bar_part, portfolio)).numpy()
    numpy_q = oracle(net.weights(V_MAX), bar_part, portfolio)
    assert numpy_q.dtype == np.float32
    scale = np.abs(want).max()
    np.testing.assert_allclose(torch_q, numpy_q, rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_allclose(numpy_q, want, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("changes", SIZES)
def test_logits_are_the_rest_of_the_network_on_its_own_contexts(changes):
    net = network(section(**changes))
    x = states(net, *rows(stack=net.network.stack_size))
    head = net.head((0, 1))
    want = net.logits(x, head)
    task, step = net.contexts(x)
    assert (task.shape, step.shape) == ((48, 3 * 3 * 6), (48, 3 * 4 * 6))
    assert torch.equal(net.logits_from(task, step, x, head), want)
    # whoever made them: the same numbers in another layout, the same input arranged
    assert torch.equal(net.logits_from(task.contiguous(), step.contiguous(), x, head), want)
    assert torch.equal(net.logits(net.arranged(x), head), want)


def test_contexts_are_those_of_the_oracle():
    net = network()
    bar_part, portfolio = rows()
    task, step = net.contexts(states(net, bar_part, portfolio))
    weights = net.weights(V_MAX)
    context = bar_context(weights, bar_part[:, 0])
    np.testing.assert_allclose(
        step.detach().numpy(), step_context(weights, context), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        task.detach().numpy(),
        task_context(weights, bar_part[:, 0], portfolio[:, 0]),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(context.scenario.sum(1), 1, rtol=1e-6)


def in_double(sizes):
    """A network, inputs and a fixed head, float64 for finite differences."""
    net = network(sizes)
    x = states(net, *rows(3, stack=sizes.stack_size)).double()
    head = tuple(part.detach().double() for part in net.head((0,)))
    return net.double(), x, head


@pytest.mark.parametrize("changes", SIZES)
def test_gradients_in_both_contexts_are_finite_differences(changes):
    net, x, head = in_double(section(**changes))
    task, step = (part.detach().requires_grad_() for part in net.contexts(x))

    def direction(task, step):
        return net.logits_from(task, step, x, head).softmax(-1) @ net.support

    assert torch.autograd.gradcheck(direction, (task, step), fast_mode=True)


def test_gradients_of_parameters_are_finite_differences():
    net, x, head = in_double(section(top_k=2))
    parameters = net.trained()
    names = ["query.balance.weight", "latent.weight", "latent.bias", "uncertainty.weight"]
    names += ["uncertainty.bias", "norm.weight", "norm.bias", "query.calendar.bias"]

    def q(*values):
        for name, value in zip(names, values, strict=True):
            module, _, leaf = name.rpartition(".")
            owner = net.get_submodule(module)
            owner._parameters.pop(leaf, None)
            setattr(owner, leaf, value)
        return net.logits(x, head)

    values = tuple(parameters[name].detach().clone().requires_grad_() for name in names)
    assert torch.autograd.gradcheck(q, values, fast_mode=True)


def test_rows_of_zeros_are_steps_that_never_were():
    net = network(section(stack_size=3))
    bar_part, portfolio = rows(stack=3)
    x = states(net, bar_part, portfolio)
    x[:, 1:] = 0
    weights = net.weights(V_MAX)
    want = forward(weights, bar_part[:, 0], portfolio[:, 0])
    with torch.no_grad():
        got = net.q_values(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    assert not np.allclose(want, oracle(weights, bar_part, portfolio), atol=1e-3)


def test_the_forecast_reaches_the_values_through_the_bypass_alone():
    net = network()
    bar_part, portfolio = rows()
    other = bar_part.copy()
    other[..., BAR_SLOTS.index(AUX_SLOT)] += 1
    before, after = (net.q_values(states(net, part, portfolio)) for part in (bar_part, other))
    alpha = net.alpha.weight
    change = (after - before)[:, :4]
    want = (alpha - alpha.mean()).expand(48, 4)
    torch.testing.assert_close(change, want, atol=1e-5, rtol=1e-4)
    assert torch.equal(after[:, 4:], before[:, 4:])
    with torch.no_grad():
        alpha.zero_()
    before, after = (net.q_values(states(net, part, portfolio)) for part in (bar_part, other))
    assert torch.equal(after, before)


def test_one_place_builds_and_exports_either_kind():
    mlp = build(section(kind="mlp"), np.random.default_rng(0))
    assert isinstance(mlp, QNetwork)
    assert mlp.context is None
    source = network()
    made = build(section(), np.random.default_rng(0), source.forecaster.numpy_state())
    assert isinstance(made, ScenarioNetwork)
    x = states(source, *rows(3))
    assert torch.equal(made.forecaster.context(x), source.forecaster.context(x))
    for net, sizes in ((mlp, section(kind="mlp")), (made, section())):
        state = net.numpy_state()
        assert shapes(sizes) == {name: array.shape for name, array in state.items()}
        assert export_weights(state, sizes, 1.5).weight_hash == net.weights(1.5).weight_hash
    q = kinds.forward(random_scenario(section(), 1, alpha=1.0), *(a[:, 0] for a in rows(3)))
    silent = kinds.forward(random_scenario(section(), 1), *(a[:, 0] for a in rows(3)))
    assert (q != silent).any(0).tolist() == [True] * 4 + [False] * 9


def test_initial_weights_are_a_function_of_the_seed_and_leave_the_forecaster_alone():
    def made(seed):
        net = ScenarioNetwork(section(), rng=generator(seed, 0, Stage.WEIGHTS))
        return {n: p.detach().numpy() for n, p in net.trained().items()}, net

    (one, net), (same, _), (other, _) = made(3), made(3), made(4)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["latent.weight"], other["latent.weight"])
    assert (one["norm.weight"] == 1).all()
    assert not one["norm.bias"].any()
    assert not any(name.startswith(("forecaster", "alpha")) for name in one)
    assert not any(p.requires_grad for p in net.forecaster.parameters())
    assert not net.critic
    critic = net.make_critic()
    assert critic.critic
    assert critic.forecaster is net.forecaster
