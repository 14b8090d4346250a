import numpy as np
import pytest
import torch

from backtest.agent.replay import PRIORITY_ONE, Replay
from backtest.market.layout import BAR_SLOTS, PORTFOLIO_SLOTS, End
from tests.backtest.agent.test_experience import ENDS, REWARDS, experience

FIRST = 900
BARS = np.repeat(
    np.arange(3000, dtype=np.float32)[:, None] + FIRST, 115, axis=1
)  # every column of a row is its bar


def replay(capacity=64, **changes) -> Replay:
    return Replay(capacity, BARS, FIRST, **changes)


def long_experience(steps=100, episodes=4, seed=0):
    ends = np.zeros((steps, episodes), np.uint8)
    ends[-1] = End.TRUNCATED
    rewards = np.random.default_rng(seed).normal(size=ends.shape)
    return experience(ends, rewards, start=[900 + 500 * e for e in range(episodes)])


def uniform(minibatches, batch, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((minibatches, batch)))


def test_rows_hold_both_states_of_their_return():
    buffer = replay()
    assert buffer.insert(experience(ENDS, REWARDS), 3, 0.5, version=7) == 11
    rows = {name: column[:11].numpy() for name, column in buffer.columns.items()}
    # rows go step by step: bars of t = 0 first; the ruined episode is missing in the last step
    assert rows["bar"].tolist() == [
        *(1000, 2000, 3000), *(1001, 2001, 3001), *(1002, 2002, 3002), *(1003, 3003),
    ]  # fmt: skip
    assert rows["returns"].tolist() == [3, 30, 300, 6, 40, 600, 8, 40, 800, 8, 800]
    assert rows["next_bar"].tolist() == [
        *(1003, 2003, 3003), *(1004, 2003, 3004), *(1004, 2003, 3004), *(1004, 3004),
    ]  # fmt: skip
    assert rows["portfolio"][:4, 0].tolist() == [0, 1, 2, 100]
    assert rows["next_portfolio"][:4, 0].tolist() == [300, 301, 302, 400]
    assert rows["bootstrap"].tolist() == [
        *(0.125, 0, 0.125), *(0.125, 0, 0.125), *(0.25, 0, 0.25), *(0.5, 0.5),
    ]  # fmt: skip
    assert (rows["action"] == [2, 1, 0, 2]).all()
    assert (rows["version"] == 7).all()


def test_a_batch_gathers_observations_by_bar():
    buffer = replay()
    buffer.insert(experience(ENDS, REWARDS), 3, 0.5, 0)
    row, weight = (part[1] for part in buffer.sample(uniform(2, 16), 1.0))
    batch = buffer.batch(row, weight)
    assert batch.state.shape == batch.next_state.shape == (16, 128)
    assert batch.action.dtype == torch.int64
    slots, rest = list(PORTFOLIO_SLOTS), list(BAR_SLOTS)
    for state, prefix in ((batch.state, ""), (batch.next_state, "next_")):
        bar = buffer.columns[f"{prefix}bar"][row]
        assert (state[:, rest] == bar[:, None]).all()
        assert torch.equal(state[:, slots], buffer.columns[f"{prefix}portfolio"][row])
    assert torch.equal(batch.returns, buffer.columns["returns"][row])
    assert torch.equal(batch.weight, weight)
    assert torch.equal(buffer.take(row).action, batch.action)


def test_the_ring_keeps_the_newest_rows():
    buffer = replay(capacity=150)
    for version in range(3):
        buffer.insert(long_experience(30, 4, seed=version), 1, 0.5, version)  # 120 rows each
    assert (buffer.size, buffer.cursor) == (150, 60)
    versions = np.bincount(buffer.columns["version"].numpy(), minlength=3)
    assert versions.tolist() == [0, 30, 120]
    # more rows than places: the last 150 of 400; row 250 is step 62 of episode 2
    whole = replay(capacity=150)
    assert whole.insert(long_experience(100, 4), 1, 0.5, 0) == 150
    assert whole.columns["bar"][:4].tolist() == [1962, 2462, 963, 1463]


def test_newest_states_come_from_the_last_insertion():
    buffer = replay(capacity=150)
    for version in range(3):
        buffer.insert(long_experience(30, 4, seed=version), 1, 0.5, version)
    states = buffer.newest(40, 120)
    assert states.shape == (40, 128)
    # 120 rows back, every third
    newest = [(buffer.cursor - 1 - 3 * i) % 150 for i in range(40)]
    assert (buffer.columns["version"][newest] == 2).all()
    assert torch.equal(states[:, 0].int(), buffer.columns["bar"][newest])
    assert torch.equal(states[:, 112], buffer.columns["portfolio"][newest, 0])


def test_draws_follow_priority_to_the_alpha_and_weights_correct_them():
    buffer = replay(alpha=0.5, scale=2.0)
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    error = torch.tensor([0.0, 2.0, 8.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 18.0])
    buffer.set_priority(torch.arange(11), error)
    batch = buffer.sample(uniform(200, 110), 0.4)
    share = np.bincount(batch.row.view(-1).numpy(), minlength=11) / batch.row.numel()
    chance = np.sqrt(error.numpy() / 2 + 1e-6)
    chance /= chance.sum()
    np.testing.assert_allclose(
        share, chance, atol=0.004
    )  # 4 standard errors of an independent draw
    assert share[0] < 0.001
    # w = (N P)^-beta over its maximum in the minibatch
    k = 3
    want = (11 * chance[batch.row[k].numpy()]) ** -0.4
    np.testing.assert_allclose(batch.weight[k].numpy(), want / want.max(), rtol=1e-5)
    assert batch.weight.amax(1).tolist() == [1.0] * 200


def test_draws_are_stratified():
    buffer = replay(capacity=128)
    buffer.insert(long_experience(32, 4), 1, 0.5, 0)
    row = buffer.sample(uniform(1, 128), 1.0).row[0]
    # equal priorities and as many strata as rows: each row once
    assert sorted(row.tolist()) == list(range(128))


def test_errors_of_zero_can_still_be_drawn():
    buffer = replay()
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    buffer.set_priority(torch.arange(11), torch.zeros(11))
    assert (buffer.columns["priority"][:11] > 0).all()
    batch = buffer.sample(uniform(1, 500), 1.0)
    assert set(batch.row.view(-1).tolist()) == set(range(11))
    assert torch.allclose(batch.weight, torch.ones(1, 500))


def test_new_rows_get_the_highest_priority_seen():
    buffer = replay(alpha=1.0)
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    assert buffer.columns["priority"][:11].unique().tolist() == [PRIORITY_ONE]
    buffer.set_priority(torch.tensor([2, 3]), torch.tensor([5.0, 0.5]))
    buffer.set_priority(torch.tensor([2]), torch.tensor([0.1]))
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 1)
    new = buffer.columns["priority"][11:22].unique()
    assert new.item() == pytest.approx(5 * PRIORITY_ONE, rel=1e-5)


def test_a_row_drawn_twice_keeps_the_larger_priority():
    buffer = replay(alpha=1.0)
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    buffer.set_priority(torch.tensor([[4, 1], [4, 4]]), torch.tensor([[0.2, 0.7], [0.9, 0.3]]))
    got = buffer.columns["priority"][[4, 1]] / PRIORITY_ONE
    np.testing.assert_allclose(got.numpy(), [0.9, 0.7], rtol=1e-5)


def test_uniform_draws_ignore_priorities():
    buffer = replay(prioritised=False)
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    buffer.set_priority(torch.arange(11), torch.arange(11.0) * 100)
    batch = buffer.sample(uniform(100, 110), 0.4)
    share = np.bincount(batch.row.view(-1).numpy(), minlength=11) / 11_000
    np.testing.assert_allclose(share, 1 / 11, atol=0.011)
    assert (batch.weight == 1).all()


def test_the_same_generator_draws_the_same_rows():
    buffer = replay()
    buffer.insert(experience(ENDS, REWARDS), 1, 0.5, 0)
    first = buffer.sample(uniform(3, 32, 5), 0.4).row
    assert torch.equal(first, buffer.sample(uniform(3, 32, 5), 0.4).row)
    assert not torch.equal(first, buffer.sample(uniform(3, 32, 6), 0.4).row)


def test_state_round_trips_bit_for_bit():
    buffer = replay(capacity=150, scale=3.0)
    for version in range(2):
        buffer.insert(long_experience(30, 4, seed=version), 2, 0.5, version)
    row = buffer.sample(uniform(2, 40), 0.4).row
    buffer.set_priority(row, torch.rand(2, 40, generator=torch.Generator().manual_seed(0)))
    copy = replay(capacity=150)
    copy.restore(buffer.state())
    assert copy.state().keys() == buffer.state().keys()
    for name, array in buffer.state().items():
        assert np.array_equal(array, copy.state()[name]), name
    both = [b.sample(uniform(2, 40, 9), 0.4) for b in (buffer, copy)]
    assert torch.equal(both[0].row, both[1].row)
    assert torch.equal(both[0].weight, both[1].weight)


def test_an_empty_replay_says_so():
    with pytest.raises(ValueError, match="empty"):
        replay().sample(uniform(1, 4), 1.0)
