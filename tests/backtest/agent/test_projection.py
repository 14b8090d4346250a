import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backtest.agent.projection import project

# (places, mass, support, expected): known answers of the categorical projection
KNOWN = [
    ([0, 1, 2, 3, 4], [0.1, 0.2, 0.1, 0.3, 0.3], [3, 4, 5, 6, 7], [0.7, 0.3, 0, 0, 0]),
    ([4, 3, 2, 1, 0], [0.1, 0.2, 0.1, 0.3, 0.3], [3, 4, 5, 6, 7], [0.9, 0.1, 0, 0, 0]),
    ([3, 4, 5, 6, 7], [0.1, 0.2, 0.1, 0.3, 0.3], [3, 4, 5, 6, 7], [0.1, 0.2, 0.1, 0.3, 0.3]),
    ([0, 2, 4, 6, 8], [0.1, 0.6, 0.1, 0.1, 0.1], [4, 5, 6, 7, 8], [0.8, 0, 0.1, 0, 0.1]),
    ([1, 3, 4, 5, 6], [0.1, 0.2, 0.5, 0.1, 0.1], [4, 5, 6, 7, 8], [0.8, 0.1, 0.1, 0, 0]),
    ([0, 2, 4, 6, 8], [0.1, 0.2, 0.3, 0.2, 0.2], [3, 4, 5, 6, 7], [0.3, 0.3, 0, 0.2, 0.2]),
    ([0, 2, 4, 6, 8], [0.1, 0.2, 0.2, 0.2, 0.3], [0, 4, 8, 12, 16], [0.2, 0.4, 0.4, 0, 0]),
    ([8, 9, 10, 12, 14], [0.1, 0.2, 0.4, 0.1, 0.2], [0, 4, 8, 12, 16], [0, 0, 0.45, 0.45, 0.1]),
]


def tensor(values):
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(("z", "p", "support", "expected"), KNOWN)
def test_known_answers(z, p, support, expected):
    result = project(tensor([z]), tensor([p]), tensor(support))
    np.testing.assert_allclose(result[0].numpy(), expected, atol=1e-6)


def test_rows_of_a_batch_are_independent():
    z = tensor([KNOWN[0][0], KNOWN[1][0]])
    p = tensor([KNOWN[0][1], KNOWN[1][1]])
    result = project(z, p, tensor(KNOWN[0][2]))
    np.testing.assert_allclose(result.numpy(), [KNOWN[0][3], KNOWN[1][3]], atol=1e-6)


masses = st.lists(st.floats(0.01, 1), min_size=11, max_size=11)


@given(masses, st.floats(-20, 20), st.floats(0, 1))
def test_mass_is_kept(weights, reward, discount):
    support = torch.linspace(-5, 5, 11)
    p = tensor([weights]) / sum(weights)
    result = project(reward + discount * support[None], p, support)
    assert result.sum().item() == pytest.approx(1, abs=1e-5)
    assert result.min().item() >= 0


@given(masses, st.floats(-2, 2), st.floats(0, 0.6))
def test_mean_is_kept_when_nothing_clips(weights, reward, discount):
    support = torch.linspace(-5, 5, 11)
    p = tensor([weights]) / sum(weights)
    places = reward + discount * support[None]
    result = project(places, p, support)
    assert (result @ support).item() == pytest.approx((places * p).sum().item(), abs=1e-4)


@pytest.mark.parametrize("reward", [-9.0, -5.0, 1.25, 3.0, 9.0])
def test_a_terminal_return_puts_all_mass_at_the_clipped_reward(reward):
    support = torch.linspace(-5, 5, 11)
    result = project(torch.full((1, 11), reward), torch.full((1, 11), 1 / 11), support)
    clipped = min(max(reward, -5.0), 5.0)
    assert (result @ support).item() == pytest.approx(clipped, abs=1e-5)
    assert (result > 1e-6).sum().item() == (1 if clipped.is_integer() else 2)


@given(st.integers(0, 50), st.floats(0.01, 1000))
def test_no_mass_is_lost_exactly_on_an_atom(atom, v_max):
    support = torch.linspace(-v_max, v_max, 51)
    places = support[atom].repeat(1, 51)
    result = project(places, torch.full((1, 51), 1 / 51), support)
    assert result[0, atom].item() == pytest.approx(1, abs=1e-4)
