import numpy as np
import pytest

from backtest.agent.support import measure_range, widen
from backtest.agent.weights import forward
from backtest.errors import ConfigError, DataError
from backtest.market.layout import End
from tests.backtest.agent.test_experience import experience
from tests.backtest.agent.test_network import inputs, network


def rewards(values):
    values = np.array(values, np.float32)
    ends = np.zeros(values.shape, np.uint8)
    ends[-1] = End.TRUNCATED
    return experience(ends, values)


def test_range_by_the_spread_of_the_reward():
    # +-1 in turn: |1 - .8 + .64| = .84 is less than 4*1/sqrt(1 - .64) = 6.667
    values = np.tile([[1.0], [-1.0]], (150, 2))
    assert measure_range(rewards(values), 3, 0.8) == pytest.approx(4 / 0.6, rel=1e-3)


def test_range_by_the_largest_returns():
    # one reward of 10 in 50 steps: sd 1.4, so 4*sd/.6 = 9.3; but 3 of 50 returns see at least
    # 10*.64 and 1 of 50 sees 10, above the 99.5 % quantile
    values = np.zeros((600, 4))
    values[::50] = 10
    assert measure_range(rewards(values), 3, 0.8) == pytest.approx(10)


def test_early_steps_do_not_count():
    values = np.tile([[1.0], [-1.0]], (150, 2))
    values[:51] = 1000
    assert measure_range(rewards(values), 3, 0.8) == pytest.approx(4 / 0.6, rel=1e-2)


def test_rows_after_ruin_do_not_count():
    values = np.tile([[1.0], [-1.0]], (150, 2)).astype(np.float32)
    ends = np.zeros(values.shape, np.uint8)
    ends[-1] = End.TRUNCATED
    ends[100:, 1] = End.DEAD
    ends[99, 1] = End.TERMINATED
    values[100:, 1] = 1000
    assert measure_range(experience(ends, values), 3, 0.8) == pytest.approx(4 / 0.6, rel=1e-2)


def test_short_episodes_name_both_keys():
    with pytest.raises(ConfigError, match=r"episode_steps\] 199 .*learner.v_max"):
        measure_range(rewards(np.ones((199, 2))), 3, 0.8)


def test_episodes_that_all_ruin_early_are_named():
    ends = np.full((200, 2), End.DEAD, np.uint8)
    ends[:40], ends[39] = End.RUNNING, End.TERMINATED
    with pytest.raises(DataError, match="outlived step 50"):
        measure_range(experience(ends), 3, 0.8)


def test_a_reward_of_zero_is_named():
    with pytest.raises(DataError, match="every reward is 0"):
        measure_range(rewards(np.zeros((300, 2))), 3, 0.8)


@pytest.mark.parametrize("atoms", [21, 50, 51])
def test_widening_keeps_the_values(atoms):
    net, (bar_part, portfolio) = network(atoms=atoms), inputs()
    state = net.numpy_state()
    # distributions well inside the range: log-density falls towards the edges
    place = np.linspace(-1, 1, atoms)
    state["value.bias"] = (state["value.bias"] * 0.1 - 12 * place**2).astype(np.float32)
    for name in ("value.weight", "advantage.weight", "advantage.bias"):
        state[name] = state[name] * np.float32(0.1)
    net.load_numpy(state)
    before = forward(net.weights(1.0), bar_part, portfolio)
    net.load_numpy(widen(state, 2.0))
    after = forward(net.weights(2.0), bar_part, portfolio)
    np.testing.assert_allclose(after, before, atol=0.02)


def test_widening_puts_little_mass_beyond_the_old_range():
    net = network(atoms=51)
    state = {name: array * 0 for name, array in net.numpy_state().items()}  # uniform
    wide = widen(state, 2.0)["value.bias"]
    p = np.exp(wide) / np.exp(wide).sum()
    outside = np.abs(np.linspace(-2, 2, 51)) > 1 + 1e-9
    # 25 equal atoms inside; beyond them exp(-1/2), exp(-3/2), ... on either side: .96 each
    tail = 2 * np.exp(-0.5) / (1 - np.exp(-1))
    assert p[outside].sum() == pytest.approx(tail / (25 + tail), rel=1e-4)
