"""Gaps, required orders, and the pairs whose reward contradicts their PnL."""

import math

import numpy as np
import pytest

from backtest.audit.order import (
    REQUIRED,
    disagreements,
    gap,
    required_gaps,
    t_statistic,
)
from backtest.audit.policies import POLICIES
from tests.backtest.audit.made import scores

RANKED = {name: 0.1 * (len(POLICIES) - i) for i, name in enumerate(POLICIES)}


class TestStatistic:
    def test_hand_worked(self):
        # mean 2, sample variance 1, three values: 2 / (1 / sqrt(3))
        assert t_statistic(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 * math.sqrt(3))

    @pytest.mark.parametrize(
        "x, t",
        [([0.0, 0.0], 0), ([2.0, 2.0], math.inf), ([-2.0, -2.0], -math.inf), ([5.0], 0)],
    )
    def test_without_dispersion(self, x, t):
        assert t_statistic(np.array(x)) == t


class TestGap:
    def test_is_paired(self):
        # both swing by 1 in step: the difference of every episode is exactly 0.5
        s = scores({"foresight": 1.5, "foresight_third": 1.0}, noise=1.0)
        found = gap(s, 100, "foresight", "foresight_third")
        assert found.reward == 0.5
        assert found.reward_t == math.inf
        assert found.holds

    def test_three_standard_errors(self):
        # out of step: differences are mean +-0.2, n = 64, error 0.2*sqrt(64/63)/8 = 0.0252
        assert gap(scores({"flat": 0.077}, noise=0.1), 100, "flat", "random").holds
        assert not gap(scores({"flat": 0.074}, noise=0.1), 100, "flat", "random").holds

    def test_names_the_term_that_speaks_most_for_the_worse(self):
        terms = {
            "dsr": {"flat": 0.0, "buy_and_hold": 0.2},
            "idle": {"flat": -0.01, "buy_and_hold": 0.0},
            "hold_rent": {"flat": 0.0, "buy_and_hold": -0.1},
            "dd_penalty": {"flat": 0.0, "buy_and_hold": -0.4},
        }
        assert gap(scores({}, terms=terms), 100, "buy_and_hold", "flat").term == "dd_penalty"
        assert gap(scores({}, terms=terms), 100, "flat", "buy_and_hold").term == "dsr"
        assert gap(scores({}, terms={"dsr": {"flat": 1.0}}), 100, "flat", "random").term is None

    def test_text(self):
        s = scores({"flat": 0.5}, {"random": 20.0}, {"dd_penalty": {"random": -0.5}})
        text = gap(s, 1000, "random", "flat").text
        assert text.startswith("T=1000: random over flat: reward -0.5000 a step (-")
        assert "net PnL +20 (+" in text
        assert text.endswith("turned by dd_penalty")


class TestRequired:
    def test_synthetic_order(self):
        assert [(g.better, g.worse) for g in required_gaps(scores(RANKED), "synthetic", 10)] == [
            ("foresight", "foresight_shrunk"),
            ("foresight_shrunk", "accurate_55"),
            ("accurate_55", "flat"),
            ("flat", "random"),
            ("random", "inverse"),
            ("foresight", "foresight_third"),
        ]
        assert all(g.holds for g in required_gaps(scores(RANKED), "synthetic", 10))

    @pytest.mark.parametrize("source", REQUIRED)
    def test_any_swap_breaks_it(self, source):
        for better, worse in REQUIRED[source]:
            swapped = RANKED | {better: RANKED[worse], worse: RANKED[better]}
            gaps = required_gaps(scores(swapped), source, 10)
            assert not all(g.holds for g in gaps), (better, worse)


class TestDisagreements:
    def test_reward_that_follows_pnl_has_none(self):
        pnl = {name: 1000 * reward for name, reward in RANKED.items()}
        assert disagreements(scores(RANKED, pnl), "bars", 100) == ()

    def test_the_richer_policy_stands_first(self):
        # buy and hold earns most but is scored below flat and random: a required pair is left out
        pnl = {"buy_and_hold": 500.0}
        reward = {"buy_and_hold": -0.5}
        found = disagreements(scores(reward, pnl), "bars", 100)
        assert {(g.better, g.worse) for g in found} == {
            ("buy_and_hold", name) for name in POLICIES if name != "buy_and_hold"
        }
        assert {g.term for g in found} == {"asym"}

    def test_required_pairs_are_not_warnings(self):
        pnl, reward = {"foresight": 500.0}, {"foresight": -0.5}
        worse = {g.worse for g in disagreements(scores(reward, pnl), "bars", 100)}
        assert worse.isdisjoint({"flat", "random"})
        assert "inverse" in worse

    def test_pnl_within_chance_is_no_warning(self):
        # differences of PnL are +-2, n = 64: one error is 0.252
        reward = {"buy_and_hold": -0.5}
        found = disagreements(scores(reward, {"buy_and_hold": 0.5}), "bars", 100)
        assert "flat" not in {g.worse for g in found}
        found = disagreements(scores(reward, {"buy_and_hold": 0.6}), "bars", 100)
        assert "flat" in {g.worse for g in found}
