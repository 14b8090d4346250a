"""Gaussian bars: their law, their independence of chunks, and the market they are traded in."""

import numpy as np
import pytest

from backtest import rng
from backtest.audit.synthetic import SIGMA, STREAM, gaussian_tape, synthetic_params
from backtest.config import parse
from backtest.market.layout import Fill, Formula

KEY = rng.key(0, *STREAM)
PARAMS = synthetic_params(parse({}))


def closes(steps, episode):
    tape, _ = gaussian_tape(PARAMS, steps, KEY, np.asarray(episode))
    return tape.bars["close"].reshape(len(episode), steps + 1)


def test_moves_are_gaussian_and_independent():
    moves = np.diff(closes(500, range(200)), axis=1) / SIGMA  # 100,000: one se is 0.0032
    assert moves.mean() == pytest.approx(0, abs=0.013)
    assert moves.std() == pytest.approx(1, abs=0.01)
    assert (moves**4).mean() == pytest.approx(3, abs=0.13)
    assert (np.abs(moves) > 1.5).mean() == pytest.approx(0.1336, abs=0.005)
    assert (moves[:, 1:] * moves[:, :-1]).mean() == pytest.approx(0, abs=0.013)
    assert (moves[1:] * moves[:-1]).mean() == pytest.approx(0, abs=0.013)


def test_an_episode_is_its_id_alone():
    np.testing.assert_array_equal(closes(40, range(10))[7:8], closes(40, [7]))
    np.testing.assert_array_equal(closes(40, range(3))[:, :21], closes(20, range(3)))


def test_bars_stand_one_behind_the_other():
    tape, start = gaussian_tape(PARAMS, 4, KEY, np.arange(3))
    assert start.tolist() == [0, 5, 10]
    assert len(tape.bars) == 15
    assert (tape.bars["close"][start] == 0).all()  # every episode starts at 5,000, the base
    bar, nxt = tape.bars[:-1], tape.bars[1:]
    inside = np.arange(1, 15) % 5 != 0
    assert (nxt["open"] == bar["close"])[inside].all()
    assert (tape.bars["high"] == np.maximum(tape.bars["open"], tape.bars["close"])).all()
    assert (tape.bars["low"] == np.minimum(tape.bars["open"], tape.bars["close"])).all()
    assert (tape.bars["adx"] == 25).all()
    assert (tape.bars["cusum"] == 0.5).all()
    assert tape.bars["sigma"] == pytest.approx(1.2)


def test_only_the_reward_is_the_configs():
    given = {
        "market": {"fill": "next_open", "initial_capital": 5e6},
        "instrument": {"max_position": 7.0, "commission": 2.0, "point_value": 50.0},
        "reward": {"formula": "composite", "w_dd": 3.0},
    }
    p = synthetic_params(parse(given))
    assert p["fill"] == Fill.CLOSE
    assert p["formula"] == Formula.COMPOSITE
    assert p["w_dd"] == 3
    assert (p["base"], p["initial_capital"], p["tick_size"]) == (5000, 100_000, 0.25)
    assert (p["mult"], p["max_position"], p["commission"]) == (1, 1, 0)
    assert p["tx_cost_multiplier"] == np.float32(1e-5)
