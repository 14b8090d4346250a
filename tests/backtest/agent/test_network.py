import dataclasses

import numpy as np
import pytest
import torch

from backtest.agent.network import QNetwork, expected, greedy
from backtest.agent.streams import Stage, generator
from backtest.agent.weights import (
    AUX_COLUMN,
    assemble,
    bar_table,
    check_shapes,
    forward,
    forward_table,
    parameter_shapes,
    split,
    support,
)
from backtest.market.layout import AUX_SLOT, BAR_SLOTS, N_ACTIONS, PORTFOLIO_SLOTS


def network(hidden=(24, 16), atoms=21, v_max=2.5, seed=0):
    """A network with every parameter, biases too, away from its initial value."""
    result = QNetwork(hidden, atoms, v_max, generator(seed, 0, Stage.WEIGHTS))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in result.parameters():
            parameter += torch.from_numpy(rng.normal(0, 0.1, parameter.shape).astype(np.float32))
    return result


def inputs(rows=64, seed=1):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 1, (rows, 115)).astype(np.float32),
        rng.normal(0, 1, (rows, 13)).astype(np.float32),
    )


def textbook(state, bar_part, portfolio, v_max):
    """Q by the definition, float64, one branch at a time on the whole 128-slot state."""
    x = np.zeros((len(bar_part), 128))
    x[:, list(BAR_SLOTS)], x[:, list(PORTFOLIO_SLOTS)] = bar_part, portfolio
    h = np.maximum(x @ state["first.weight"].T.astype(np.float64) + state["first.bias"], 0)
    h = np.maximum(h @ state["hidden.weight"].T.astype(np.float64) + state["hidden.bias"], 0)
    value = h @ state["value.weight"].T.astype(np.float64) + state["value.bias"]
    atoms = value.shape[1]
    advantage = h @ state["advantage.weight"].T.astype(np.float64) + state["advantage.bias"]
    advantage = advantage.reshape(len(x), N_ACTIONS, atoms)
    z = np.linspace(-v_max, v_max, atoms)
    q = []
    for part in np.split(advantage, [4, 7, 10], axis=1):
        logits = value[:, None] + part - part.mean(1, keepdims=True)
        p = np.exp(logits)
        q.append((p / p.sum(2, keepdims=True)) @ z)
    alpha = state["alpha.weight"].astype(np.float64)
    q[0] += x[:, [AUX_SLOT]] * (alpha - alpha.mean())
    return np.concatenate(q, 1)


@pytest.mark.parametrize(("hidden", "atoms"), [((24, 16), 21), ((128, 128), 51)])
def test_numpy_torch_and_the_definition_agree(hidden, atoms):
    net, (bar_part, portfolio) = network(hidden, atoms), inputs()
    want = textbook(net.numpy_state(), bar_part, portfolio, 2.5)
    with torch.no_grad():
        torch_q = net.q_values(torch.from_numpy(assemble(bar_part, portfolio))).numpy()
    numpy_q = forward(net.weights(2.5), bar_part, portfolio)
    scale = np.abs(want).max()
    assert numpy_q.dtype == np.float32
    np.testing.assert_allclose(numpy_q, torch_q, rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_allclose(numpy_q, want, rtol=1e-5, atol=1e-5 * scale)


def test_some_branches_are_the_same_columns():
    net = network()
    states = torch.from_numpy(assemble(*inputs()))
    whole = net.q_values(states)
    for branches, columns in [((0,), [0, 1, 2, 3]), ((0, 3), [0, 1, 2, 3, 10, 11, 12])]:
        part = net.q_values(states, branches)
        torch.testing.assert_close(part, whole[:, columns])


def test_scoring_first_does_not_spoil_training():
    states = torch.from_numpy(assemble(*inputs(4)))
    net = network()
    branches = (1, 2)  # not asked for elsewhere, so that scoring fills the cache
    with torch.inference_mode():
        net.q_values(states, branches)
    net.q_values(states, branches).sum().backward()
    assert net.first.weight.grad.any()


def test_the_bar_table_gives_the_same_values():
    weights, (bar_part, portfolio) = network().weights(2.5), inputs()
    table = bar_table(weights, bar_part)
    assert table.shape == (64, 24)
    again = forward_table(weights, table, portfolio, bar_part[:, AUX_COLUMN])
    assert np.array_equal(again, forward(weights, bar_part, portfolio))


def test_support_is_symmetric_with_an_exact_zero():
    z = support(1.7, 51)
    assert z.dtype == np.float32
    assert z[25] == 0
    assert np.array_equal(z, -z[::-1])
    assert z[-1] == np.float32(1.7)


def test_initial_weights_are_he_normal_and_a_function_of_the_seed():
    net = QNetwork((128, 128), 51, rng=generator(5, 9, Stage.WEIGHTS))
    assert net.first.weight.std().item() == pytest.approx(np.sqrt(2 / 128), rel=0.03)
    assert net.hidden.weight.std().item() == pytest.approx(np.sqrt(2 / 128), rel=0.03)
    assert not net.first.bias.any()
    same = QNetwork((128, 128), 51, rng=generator(5, 9, Stage.WEIGHTS)).weights(1.0)
    other = QNetwork((128, 128), 51, rng=generator(6, 9, Stage.WEIGHTS)).weights(1.0)
    assert net.weights(1.0).weight_hash == same.weight_hash != other.weight_hash


def test_untrained_values_are_near_zero():
    # large random values would have to be unlearned before an edge of a few percent shows
    net = QNetwork((128, 128), 51, 1.0, generator(0, 0, Stage.WEIGHTS))
    q = forward(net.weights(1.0), *inputs())
    assert 0 < np.abs(q).max() < 0.1


def test_weight_hash_sees_every_array():
    weights = network().weights(2.5)
    seen = {weights.weight_hash}
    for field in dataclasses.fields(weights):
        array = getattr(weights, field.name).copy()
        array.flat[-1] += 1
        seen.add(dataclasses.replace(weights, **{field.name: array}).weight_hash)
    assert len(seen) == 10


def test_kernels_get_arrays_in_c_order():
    weights = network().weights(2.5)
    for field in dataclasses.fields(weights):
        array = getattr(weights, field.name)
        assert array.dtype == np.float32, field.name
        assert array.flags.c_contiguous, field.name
    assert weights.W1_bar.shape == (24, 115)
    assert weights.W1_portfolio.shape == (24, 13)
    assert (weights.hidden, weights.atoms) == ((24, 16), 21)


def test_state_is_split_and_assembled_by_slot():
    state = np.arange(2 * 128, dtype=np.float32).reshape(2, 128)
    bar_part, portfolio = split(state)
    assert portfolio[0].tolist() == [*range(112, 121), *range(122, 126)]
    assert AUX_SLOT in bar_part[0]
    assert np.array_equal(assemble(bar_part, portfolio), state)
    with pytest.raises(ValueError, match="128"):
        split(state[:, :127])


def test_greedy_takes_the_first_of_equals():
    q = torch.zeros(1, 13)
    q[0, [5, 6]] = 1
    assert greedy(q).tolist() == [[0, 1, 0, 0]]


def test_expected_value_of_known_distributions():
    logits = torch.log(torch.tensor([[0.2, 0.3, 0.5]]))
    assert expected(logits, torch.tensor([-1.0, 0.0, 1.0])).item() == pytest.approx(0.3)


def test_parameters_round_trip_through_numpy_and_shapes_are_checked():
    net = network()
    copy = QNetwork((24, 16), 21)
    copy.load_numpy(net.numpy_state())
    assert copy.weights(1.0).weight_hash == net.weights(1.0).weight_hash
    state = net.numpy_state()
    assert parameter_shapes((24, 16), 21) == {k: v.shape for k, v in state.items()}
    assert check_shapes(state, parameter_shapes((24, 16), 21)) == []
    del state["first.bias"]
    assert check_shapes(state, parameter_shapes((24, 16), 31)) == [
        "first.bias is missing, expected (24,)",
        "value.weight is (21, 16), expected (31, 16)",
        "value.bias is (21,), expected (31,)",
        "advantage.weight is (273, 16), expected (403, 16)",
        "advantage.bias is (273,), expected (403,)",
    ]
