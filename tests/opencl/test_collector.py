"""Collector and evaluator: which bars they start from, what a score is, what it depends on."""

from dataclasses import replace

import numpy as np
import pytest

from backtest import rng
from backtest.agent.random_policy import random_policy
from backtest.config import Instrument, Market
from backtest.evaluation.account import account, reconcile, tolerance
from backtest.evaluation.metrics import daily_returns
from backtest.evaluation.ratios import sharpe
from backtest.market.layout import BRANCHES, COMPONENTS, End
from opencl.collector import LEAST_SEGMENT, SEGMENTS, DeviceCollector, DeviceEvaluator, greedy
from opencl.rollout import Rollout, Shape
from tests.tables import rough_table, tape_of

SHAPE = Shape((16, 12), 11, ("direction", "magnitude", "order"))
MARKET = Market(initial_capital=1e5)
COSTLY = Instrument(
    point_value=5.0,
    max_position=15.0,
    commission=0.5,
    half_spread=0.125,
    slippage=0.125,
)
KEY = rng.key(7, "SP500", "2011-01-01")
WEIGHTS = random_policy(SHAPE.hidden, SHAPE.atoms)


def rollout_of(device, n, market=MARKET, first_bar=40):
    """A rough market of n bars, states at random, on the device; and its table."""
    table = replace(rough_table(n, 5, base=1200.0, step=8.0), first_bar=first_bar)
    state = np.random.default_rng(1).normal(0, 1, (n, 115)).astype(np.float32)
    return Rollout(device, tape_of(table, COSTLY, market), state, SHAPE), table


def collector_of(rollout, envs=64, steps=60):
    return DeviceCollector(rollout, KEY, envs, steps)


class TestStarts:
    @pytest.mark.parametrize("room", [1, 2, 5])
    def test_episodes_begin_on_every_bar_that_leaves_them_their_steps(self, device, room):
        # bars [40, 40 + 60 + room): the last decision of an episode is at stop - 2
        rollout, _ = rollout_of(device, 60 + room)
        found = collector_of(rollout).collect(WEIGHTS, 0, 1.0)
        tape = rollout.tape
        assert set(found.start) == set(range(tape.start, tape.stop - 60))
        found.check(tape.start, tape.stop)

    def test_a_window_shorter_than_an_episode(self, device):
        rollout, _ = rollout_of(device, 30)
        found = collector_of(rollout).collect(WEIGHTS, 0, 1.0)
        assert found.reward.shape == (29, 64)
        assert set(found.start) == {40}
        found.check(40, 70)
        assert set(found.end[-1]) <= {End.TRUNCATED, End.TERMINATED, End.DEAD}

    def test_rounds_and_seeds_differ(self, device):
        rollout, _ = rollout_of(device, 200)
        first = collector_of(rollout).collect(WEIGHTS, 0, 1.0)
        second = collector_of(rollout).collect(WEIGHTS, 1, 1.0)
        other = replace(collector_of(rollout), key=rng.key(8, "SP500", "2011-01-01"))
        assert not np.array_equal(first.start, second.start)
        assert not np.array_equal(first.start, other.collect(WEIGHTS, 0, 1.0).start)


class TestCollection:
    @pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
    def test_twice_the_same(self, device, epsilon):
        rollout, _ = rollout_of(device, 150)
        one, two = (collector_of(rollout, 16).collect(WEIGHTS, 3, epsilon) for _ in range(2))
        for name in ("start", "action", "reward", "end", "portfolio", "equity"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))

    def test_an_episode_does_not_depend_on_the_others(self, device):
        rollout, _ = rollout_of(device, 150)
        many = collector_of(rollout, 40).collect(WEIGHTS, 0, 0.5)
        few = collector_of(rollout, 7).collect(WEIGHTS, 0, 0.5)
        for name in ("start", "action", "reward", "end", "portfolio", "equity"):
            whole = getattr(many, name)
            part = whole[:7] if name == "start" else whole[:, :7]
            np.testing.assert_array_equal(getattr(few, name), part)

    def test_the_first_round_carries_its_components(self, device):
        rollout, _ = rollout_of(device, 150)
        first, second = (collector_of(rollout, 4).collect(WEIGHTS, r, 1.0) for r in (0, 1))
        assert first.components.shape == (60, 4, len(COMPONENTS))
        assert second.components is None


class TestScore:
    def evaluator(self, device, n, market=MARKET, hours=24):
        rollout, table = rollout_of(device, n, market)
        session = (np.arange(n) // hours).astype(np.int32)
        both = {"train": rollout, "validation": rollout}
        sessions = {"train": session, "validation": session}
        return DeviceEvaluator(both, sessions, KEY, 365.0), table, session

    def replayed(self, evaluator, table, start, steps, market=MARKET):
        """The float64 PnL of a greedy episode, and how far float32 may stray a step."""
        rollout = evaluator.rollouts["train"]
        out = greedy(rollout, [WEIGHTS], np.array([[start]]), steps, KEY[None], trace=True)
        trace, order = out.trace[:, 0], out.action[:, 0, 2]
        found = account(trace, order, table, start, COSTLY, market)
        reconcile(found, trace, COSTLY, market)
        return found.pnl, tolerance(trace, COSTLY, market)

    def test_validation_is_the_float64_account(self, device):
        evaluator, table, session = self.evaluator(device, 241)
        score = evaluator.evaluate(WEIGHTS, "validation")
        pnl, allowed = self.replayed(evaluator, table, 40, 240)
        assert np.any(pnl != 0)
        # the first bar on the tape is decided on, not earned
        returns, _ = daily_returns(session[1:], pnl, MARKET.initial_capital)
        error = 24 * allowed / MARKET.initial_capital
        np.testing.assert_allclose(score.returns, returns, rtol=0, atol=error)
        assert score.pnl == pytest.approx(pnl.sum(), abs=240 * allowed)
        # d(mean/std) <= |error|/std * (1 + |ratio|), times sqrt(365)
        ratio = returns.mean() / returns.std(ddof=1)
        room = error / returns.std(ddof=1) * (1 + abs(ratio)) * np.sqrt(365)
        assert score.sharpe == pytest.approx(sharpe(returns, 365.0), abs=room)
        assert room < 0.1

    def test_a_long_train_window_is_cut_into_segments(self, device):
        steps = LEAST_SEGMENT
        n = SEGMENTS * steps + 4  # three bars are left over
        evaluator, table, session = self.evaluator(device, n)
        score = evaluator.evaluate(WEIGHTS, "train")
        parts = [
            self.replayed(evaluator, table, 40 + part * steps, steps) for part in range(SEGMENTS)
        ]
        pnl = np.concatenate([part for part, _ in parts])
        allowed = max(allowed for _, allowed in parts)
        returns, _ = daily_returns(session[1 : SEGMENTS * steps + 1], pnl, MARKET.initial_capital)
        error = 24 * allowed / MARKET.initial_capital
        np.testing.assert_allclose(score.returns, returns, rtol=0, atol=error)

    def test_a_shorter_train_window_is_one_episode(self, device):
        evaluator, _, _ = self.evaluator(device, SEGMENTS * LEAST_SEGMENT // 8)
        train, validation = (evaluator.evaluate(WEIGHTS, w) for w in ("train", "validation"))
        np.testing.assert_array_equal(train.returns, validation.returns)

    def test_after_ruin_nothing_is_earned(self, device):
        poor = Market(initial_capital=1e5, ruin_level=99_900.0)
        evaluator, table, session = self.evaluator(device, 481, poor)
        score = evaluator.evaluate(WEIGHTS, "validation")
        pnl, allowed = self.replayed(evaluator, table, 40, 480, poor)
        assert pnl.sum() <= -100  # so that the case is what it says
        assert score.pnl == pytest.approx(pnl.sum(), abs=480 * allowed)
        assert len(score.returns) == 21
        assert score.returns[-1] == 0
        assert len(np.unique(session)) == 21

    def test_trades_and_actions_are_counted_when_asked_for(self, device):
        plain, table, _ = self.evaluator(device, 241)
        score = plain.evaluate(WEIGHTS, "validation")
        assert (score.trades, score.wins, score.actions) == (None, None, ())
        counting = replace(plain, trades=True)
        assert counting.evaluate(WEIGHTS, "train").trades is None
        found = counting.evaluate(WEIGHTS, "validation")
        assert found.pnl == score.pnl
        np.testing.assert_array_equal(found.returns, score.returns)
        rollout = plain.rollouts["validation"]
        out = greedy(rollout, [WEIGHTS], np.array([[40]]), 240, KEY[None], trace=True)
        trades = account(out.trace[:, 0], out.action[:, 0, 2], table, 40, COSTLY, MARKET).trades
        closed = trades["pnl"][trades["reason"] != "open"]
        assert (found.trades, found.wins) == (len(closed), (closed > 0).sum())
        assert 0 < found.wins < found.trades
        for name, start, stop in (("direction", 0, 4), ("urgency", 10, 13)):
            taken = out.action[:, 0, list(BRANCHES).index(name)]
            assert (
                list(found.actions[start:stop])
                == np.bincount(taken, minlength=stop - start).tolist()
            )
