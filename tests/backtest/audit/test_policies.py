"""Scripted policies: hand-worked targets, their skill, their turnover, and their random streams."""

import numpy as np
import pytest

from backtest import rng
from backtest.audit.policies import POLICIES, fill_moves, random_path, target_paths
from backtest.market.layout import BarFlag, Fill
from tests.scenes import bars, params, random_tape, tape

KEY = rng.key(0, "TEST", "audit")
#                 bar:  0     1     2     3     4
OPEN, CLOSE = [10.0, 11.0, 9.0, 12.0, 12.0], [10.0, 12.0, 11.0, 12.0, 9.0]


def paths(t, start, steps, episode=None):
    ids = np.arange(len(start)) if episode is None else episode
    targets = target_paths(t, np.asarray(start), steps, KEY, ids)
    return {name: targets[:, i] for i, name in enumerate(POLICIES)}


class TestFillMoves:
    def test_next_open_counts_from_the_open_of_the_next_bar(self):
        t = tape(bars(CLOSE, open=OPEN), params(fill=Fill.NEXT_OPEN))
        assert fill_moves(t).tolist() == [1, 2, 0, -3]

    def test_close_counts_from_the_close(self):
        t = tape(bars(CLOSE, open=OPEN), params(fill=Fill.CLOSE))
        assert fill_moves(t).tolist() == [2, -1, 1, -3]

    def test_a_roll_gap_is_nobodys_foresight(self):
        # close[1] = 12, open[2] = 9 is the next contract: the close shifts by -3 to 9
        t = tape(bars(CLOSE, open=OPEN, flags=[0, 0, BarFlag.ROLL, 0, 0]), params(fill=Fill.CLOSE))
        assert fill_moves(t).tolist() == [2, 2, 1, -3]


class TestTargets:
    def test_hand_worked(self):
        # sigma 1.25: moves above 1.875 points are large
        p = params(fill=Fill.NEXT_OPEN, max_position=6.0)
        got = paths(tape(bars(CLOSE, open=OPEN, sigma=1.25), p), [0], 4)
        third = np.float32(6) * np.float32(1 / 3)
        assert got["foresight"][:, 0].tolist() == [6, 6, 0, -6]
        assert got["foresight_shrunk"][:, 0].tolist() == [6, third, 0, -third]
        assert got["foresight_third"][:, 0].tolist() == [third, third, 0, -third]
        assert got["inverse"][:, 0].tolist() == [-6, -6, 0, 6]
        assert got["buy_and_hold"][:, 0].tolist() == [6, 6, 6, 6]
        assert got["flat"][:, 0].tolist() == [0, 0, 0, 0]

    def test_global_bars(self):
        t = tape(bars(CLOSE, open=OPEN), params(fill=Fill.CLOSE), start=700)
        assert paths(t, [701], 3)["foresight"][:, 0].tolist() == [-1, 1, -1]

    def test_dtype_and_shape(self):
        targets = target_paths(random_tape(50), np.arange(7), 20, KEY, np.arange(7))
        assert targets.dtype == np.float32
        assert targets.shape == (20, len(POLICIES), 7)

    def test_accuracy_is_what_the_name_says(self):
        t = random_tape(1200, seed=1)
        got = paths(t, np.arange(200), 900)
        hits = {p: (got[p] == got["foresight"]).mean() for p in ("accurate_55", "accurate_60")}
        # 180,000 draws: one standard error is 0.0012
        assert hits["accurate_55"] == pytest.approx(0.55, abs=0.005)
        assert hits["accurate_60"] == pytest.approx(0.60, abs=0.005)

    def test_the_better_forecast_errs_only_where_the_worse_one_does(self):
        got = paths(random_tape(300), np.arange(50), 200)
        right55, right60 = (got[p] == got["foresight"] for p in ("accurate_55", "accurate_60"))
        assert not (right55 & ~right60).any()

    def test_episodes_do_not_depend_on_their_batch(self):
        t = random_tape(200)
        together = paths(t, np.arange(10), 50)
        alone = paths(t, [7], 50, np.array([7]))
        for name in POLICIES:
            np.testing.assert_array_equal(together[name][:, 7:8], alone[name])

    def test_a_longer_episode_starts_like_a_shorter_one(self):
        t = random_tape(200)
        long, short = paths(t, np.arange(5), 100), paths(t, np.arange(5), 30)
        for name in set(POLICIES) - {"random"}:  # its rate of turns is that of the whole episode
            np.testing.assert_array_equal(long[name][:30], short[name])

    def test_each_episode_has_its_own_errors(self):
        got = paths(random_tape(200), np.zeros(2, int), 100)["accurate_55"]
        assert (got[:, 0] != got[:, 1]).any()


class TestRandom:
    def test_hand_worked(self):
        # the model changes by 2 and 2 over three changes: it turns at 2/3 of the bars
        model = np.array([[1], [-1], [1], [1]], np.float32)
        u = np.array([[0.4], [0.6], [0.7], [0.1]], np.float32)
        # u[0] < 1/2 starts short; 0.6 turns, 0.7 does not, 0.1 turns
        assert random_path(model, u)[:, 0].tolist() == [-1, 1, 1, -1]

    def test_a_model_that_never_turns(self):
        model = np.ones((5, 1), np.float32)
        u = np.full((5, 1), 0.5, np.float32)
        assert random_path(model, u)[:, 0].tolist() == [1, 1, 1, 1, 1]

    def test_one_step(self):
        assert random_path(np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)) == [[-1]]

    def test_turnover_matches_and_nothing_is_known(self):
        # trending bars: the foresight seldom turns, and neither may the random policy
        close = np.cumsum(np.repeat(np.resize([1.0, -1.0], 60), 20))
        t = tape(bars(close), params(fill=Fill.CLOSE))
        got = paths(t, np.arange(200), 900)
        turnover = {p: np.abs(np.diff(got[p], axis=0)).mean() for p in ("accurate_55", "random")}
        assert turnover["random"] == pytest.approx(turnover["accurate_55"], rel=0.02)
        # 200 episodes of few turns each: agreement is 0 within 4 standard errors
        agreement = (got["random"] * got["foresight"]).mean(axis=0)
        assert abs(agreement.mean()) < 4 * agreement.std(ddof=1) / np.sqrt(200)
