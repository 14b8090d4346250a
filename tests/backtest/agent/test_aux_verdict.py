"""Figures and verdicts by hand."""

import numpy as np
import pytest
from scipy.stats import binomtest

from backtest.agent.aux_verdict import (
    action_counts,
    action_shares,
    bypass_norms,
    conclusion,
    epoch_figures,
    epoch_rows,
    figure_rows,
    total_variation,
    verdict_row,
    win_interval,
    without_figures,
)
from backtest.agent.protocols import Score
from backtest.market.layout import End
from backtest.schema import declared


def figures(**changes):
    values = {"epoch": 0, "trades": 100, "wins": 60, "w_norm": 0.2, "adam_m": 0.1, "adam_v": 0.01}
    parts = {"variance": {"direction": 1.0, "magnitude": 0.5}, "share": {"direction": [1, 0, 0, 0]}}
    return values | parts | changes


def test_counts_and_shares():
    action = np.array([[[0, 2, 0, 2], [2, 2, 0, 2]], [[2, 1, 0, 2], [3, 0, 2, 0]]])
    end = np.array([[End.RUNNING, End.RUNNING], [End.TRUNCATED, End.DEAD]])
    counts = action_counts(action, end)
    assert counts.tolist() == [1, 0, 2, 0, 0, 1, 2, 3, 0, 0, 0, 0, 3]
    shares = action_shares(counts)
    assert shares["direction"] == pytest.approx([1 / 3, 0, 2 / 3, 0])
    assert shares["urgency"] == [0, 0, 1]
    assert action_shares(()) == {} == action_shares([0] * 13)


def test_total_variation():
    assert total_variation([1, 0], [0, 1]) == 1
    assert total_variation([0.5, 0.3, 0.2], [0.4, 0.4, 0.2]) == pytest.approx(0.1)


@pytest.mark.parametrize(("wins", "trades"), [(0, 10), (7, 10), (20_600, 40_000), (3, 3)])
def test_win_interval_is_wilsons(wins, trades):
    found = win_interval(wins, trades)
    wanted = binomtest(wins, trades).proportion_ci(0.95, method="wilson")
    assert (found.value, found.n) == (wins / trades, trades)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_no_trade_has_no_win_rate():
    found = win_interval(0, 0)
    assert (found.value, found.low, found.high, found.n) == (None, None, None, 0)


def test_two_sigma_takes_forty_thousand_trades():
    """51 % against 50.5 %: a hundredth of a trade's own deviation of a half."""
    assert win_interval(20_400, 40_000, 0.9545).low > 0.505 - 1e-4
    assert win_interval(5_100, 10_000, 0.9545).low < 0.505


@pytest.mark.parametrize(
    ("changes", "win", "tv", "wanted"),
    [
        ({}, (600, 1000), None, "confirmed"),
        ({}, (600, 1000), 0.1, "confirmed"),
        ({}, (600, 1000), 0.0, "routed but not actionable"),
        ({}, (510, 1000), 0.1, "routed but not actionable"),
        ({}, (0, 0), None, "routed but not actionable"),
        ({"variance": {"magnitude": 1e-3}}, (600, 1000), None, "routed but not actionable"),
        ({"variance": {"order": 2e-3, "urgency": 1e-4}}, (600, 1000), None,
         "routed but not actionable"),
        ({"variance": {}}, (600, 1000), None, "confirmed"),  # no sizing branch is learned
        ({"w_norm": 0.0}, (600, 1000), None, "gradient broken"),
        ({"adam_v": 0.0}, (600, 1000), None, "gradient broken"),
        ({"w_norm": float("nan")}, (600, 1000), None, "gradient broken"),
        ({"w_norm": None, "adam_v": None}, (600, 1000), None, None),  # no bypass
    ],
)  # fmt: skip
def test_conclusion(changes, win, tv, wanted):
    assert conclusion(figures(**changes), win_interval(*win), tv) == wanted


def test_a_row_of_the_table():
    share = {"direction": [0.5, 0, 0.5, 0], "magnitude": [0, 0, 1]}
    reference = {"direction": [0.25, 0.25, 0.5, 0], "magnitude": [0, 0, 1]}
    row = verdict_row(figures(), win_interval(60, 100), share, reference)
    columns = set(declared()["aux_verdict"].schema.names)
    assert columns - set(row) == {"fold_id", "seed", "epoch", "reference_fold_id"}
    assert (row["tv_direction"], row["tv_magnitude"], row["tv_order"]) == (0.25, 0, None)
    assert (row["advantage_var_magnitude"], row["advantage_var_order"]) == (0.5, None)
    assert verdict_row(figures(), win_interval(60, 100), share, None)["tv_direction"] is None


def test_epochs_meet_the_same_epoch_of_the_reference():
    first = [figures(), figures(epoch=1, share={"direction": [0, 1, 0, 0]})]
    other = [figures(share={"direction": [0, 0, 1, 0]})]
    rows = epoch_rows(first, other, 0.95)
    assert [row["epoch"] for row in rows] == [0, 1]
    assert [row["tv_direction"] for row in rows] == [1, None]
    assert epoch_rows(first, None, 0.95)[0]["tv_direction"] is None


def test_norms_are_of_the_centred_weights():
    moments = np.array([[4, 1, 1, 2], [3, 4, 0, 0], [0, 0, 0, 2]], np.float32)
    assert bypass_norms(moments) == {"w_norm": np.sqrt(6), "adam_m": 5, "adam_v": 2}
    assert set(bypass_norms(None).values()) == {None}


class TestEpochFigures:
    class Learner:
        """Two learned branches with values known by hand."""

        branches = (0, 1)

        @property
        def online(self):
            return self

        def q_values(self, states, branches):
            import torch

            assert branches == (0, 1)
            return torch.tensor([[1.0, 3, 1, 3, 0, 0, 3], [2, 2, 2, 2, 5, 5, 5]])

        def bypass_moments(self):
            return np.array([[3, -1, -1, -1], [0, 0, 0, 1], [0, 0, 0, 2]], np.float32)

    def row(self):
        counts = (1, 0, 3, 0, 0, 2, 2, 4, 0, 0, 0, 0, 4)
        validation = Score(0.5, 1.0, np.zeros(3), trades=7, wins=4, actions=counts)
        return epoch_figures(self.Learner(), None, validation)

    def test_the_curve_keeps_them_flat_and_the_summary_nested(self):
        row = self.row()
        assert all(isinstance(value, int | float) for value in row.values())
        (found,) = figure_rows([{"epoch": 2, "loss": 1.0, **row}])
        assert found == {
            "epoch": 2,
            "trades": 7,
            "wins": 4,
            "w_norm": pytest.approx(np.sqrt(12)),
            "adam_m": 1,
            "adam_v": 2,
            # advantages -1, 1, -1, 1 and four zeros; -1, -1, 2 and three zeros
            "variance": {"direction": 0.5, "magnitude": 1.0},
            "share": {"direction": [0.25, 0, 0.75, 0], "magnitude": [0, 0.5, 0.5]},
        }
        assert without_figures({"epoch": 2, "loss": 1.0, **row}) == {"epoch": 2, "loss": 1.0}

    def test_nothing_counted_nothing_said(self):
        assert epoch_figures(self.Learner(), None, Score(0.5, 1.0, np.zeros(3))) == {}
        assert figure_rows([{"epoch": 0, "loss": 1.0}]) == []
