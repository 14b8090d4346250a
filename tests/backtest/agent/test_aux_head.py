"""The direction forecaster: labels by hand, what each forecast may see, and that it can learn."""

import numpy as np
import pytest

from backtest.agent import streams
from backtest.agent.aux_head import BLOCKS, INPUTS, AuxHead, edges, fit, labels
from backtest.config import Aux
from backtest.errors import DataError
from tests.tables import rough_table, table_of

SMALL = Aux(horizon=3, hidden=4, updates=30, batch=32)
NAN = np.nan


def equal(a, b):
    return all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)


def random_head(seed=0, hidden=5):
    rng = np.random.default_rng(seed)
    shapes = ((hidden, INPUTS), (hidden,), (hidden,), (1,))
    return AuxHead(*(rng.normal(0, 0.2, shape).astype(np.float32) for shape in shapes))


class TestLabels:
    def test_by_hand(self):
        # two bars ahead: up, down, same, up; the last two are not known
        found = labels(table_of([10, 12, 11, 11, 11, 14]), 2, tick_size=0.5)
        np.testing.assert_array_equal(found, np.float32([1, 0, 0.5, 1, NAN, NAN]))

    def test_half_a_tick_is_no_move(self):
        found = labels(table_of([10, 10.24, 9.76, 10.25]), 1, tick_size=0.5)
        np.testing.assert_array_equal(found, np.float32([0.5, 0, 1, NAN]))

    def test_a_roll_gap_is_no_move(self):
        # the contract changes at bar 2: 11 -> 21 is the gap, then the price falls
        table = table_of([10, 11, 20, 19], [10, 10, 21, 20], roll=[False, False, True, False])
        found = labels(table, 1, tick_size=0.5)
        np.testing.assert_array_equal(found, np.float32([1, 0, 0, NAN]))
        # without the gap of 10 the second bar ahead is 10 and 9 against 10 and 11
        np.testing.assert_array_equal(labels(table, 2, 0.5)[:2], np.float32([0.5, 0]))

    def test_a_window_shorter_than_the_horizon_has_none(self):
        assert np.isnan(labels(table_of([1, 2, 3]), 12, 0.5)).all()


class TestForecast:
    def test_the_network_by_hand(self):
        head = random_head()
        states = np.random.default_rng(1).normal(0, 1, (300, 115)).astype(np.float32)
        hidden = np.maximum(states[:, :INPUTS] @ head.first_weight.T + head.first_bias, 0)
        p = 1 / (1 + np.exp(-(hidden @ head.logit_weight + head.logit_bias).astype(float)))
        np.testing.assert_allclose(head.forecast(states), 2 * p - 1, atol=1e-6)
        assert np.abs(head.forecast(states * 1e4)).max() <= 1

    def test_a_row_does_not_depend_on_the_rows_beside_it(self):
        head = random_head()
        states = np.random.default_rng(1).normal(0, 1, (5000, 115)).astype(np.float32)
        whole = head.forecast(states)
        parts = [head.forecast(states[i:j]) for i, j in ((0, 1), (1, 4500), (4500, 5000))]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        # slots behind the first 112 are not read
        np.testing.assert_array_equal(head.forecast(states[:, :INPUTS]), whole)

    def test_silence(self):
        assert (AuxHead.silent(3).forecast(np.ones((4, 115), np.float32)) == 0).all()


@pytest.fixture(scope="module")
def case():
    """Rows whose label is mostly the sign of feature 0, and noise beside it."""
    rng = np.random.default_rng(4)
    states = rng.normal(0, 1, (1000, 115)).astype(np.float32)
    target = (states[:, 0] + rng.normal(0, 0.5, 1000) > 0).astype(np.float32)
    target[-3:] = np.nan
    return states, target


@pytest.fixture(scope="module")
def fitted(case):
    return fit(*case, SMALL, seed=3, stream=7)


def test_edges():
    assert edges(10) == [0, 2, 4, 6, 8, 10]
    assert edges(13) == [0, 2, 5, 7, 10, 13]


def test_the_same_arguments_give_the_same_bits(case, fitted):
    again = fit(*case, SMALL, seed=3, stream=7)
    assert equal(again.head, fitted.head)
    np.testing.assert_array_equal(again.train, fitted.train)
    assert not equal(fit(*case, SMALL, seed=4, stream=7).head, fitted.head)
    assert not equal(fit(*case, SMALL, seed=3, stream=8).head, fitted.head)


def test_a_label_reaches_later_blocks_only(case, fitted):
    """Block j is forecast by a head of the rows before it, K bars purged; block 0 by none."""
    states, target = case
    starts = edges(len(states))
    assert (fitted.train[: starts[1]] == 0).all()
    assert (fitted.train[starts[1] :] != 0).all()
    for block in range(BLOCKS):
        # the purged rows before it have labels that end in the block
        changed = target.copy()
        rows = slice(max(starts[block] - SMALL.horizon, 0), starts[block + 1])
        changed[rows] = 1 - target[rows]
        other = fit(states, changed, SMALL, seed=3, stream=7)
        until = starts[block + 1]
        np.testing.assert_array_equal(other.train[:until], fitted.train[:until])
        if block < BLOCKS - 1:
            after = slice(until, starts[block + 2])
            assert (other.train[after] != fitted.train[after]).any()
        assert not equal(other.head, fitted.head)


def test_a_forecast_reads_the_states_of_its_own_block_and_earlier_ones(case, fitted):
    states, target = case
    starts = edges(len(states))
    changed = states.copy()
    changed[starts[3] :] += 1
    other = fit(changed, target, SMALL, seed=3, stream=7)
    np.testing.assert_array_equal(other.train[: starts[3]], fitted.train[: starts[3]])


def test_few_rows_forecast_nothing():
    states = np.random.default_rng(0).normal(0, 1, (60, 115)).astype(np.float32)
    target = (states[:, 0] > 0).astype(np.float32)
    found = fit(states, target, SMALL)
    # blocks begin at 12, 24, 36, 48; 32 labelled rows lie before the last one only
    assert (found.train[:36] == 0).all()
    assert (found.train[36:] != 0).all()
    short = fit(states[:20], target[:20], SMALL)
    assert equal(short.head, AuxHead.silent(4))
    assert (short.train == 0).all()


def test_rows_and_labels_must_agree(case):
    with pytest.raises(DataError, match="5 labels for 1000 train rows"):
        fit(case[0], case[1][:5], SMALL)


def test_streams_of_the_heads_are_their_own():
    drawn = {
        tuple(streams.generator(0, 0, streams.Stage.AUX, i).random(3))
        for i in range(2 * BLOCKS + 1)
    }
    assert len(drawn) == 2 * BLOCKS + 1


def test_rough_bars_have_finite_labels():
    table = rough_table(200, seed=3)
    found = labels(table, 12, 0.25)
    assert set(np.unique(found[:-12])) <= {0.0, 0.5, 1.0}
    assert np.isnan(found[-12:]).all()
