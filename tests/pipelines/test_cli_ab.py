"""The table of `ab` about the direction forecast."""

import numpy as np

from backtest.agent.aux_verdict import win_interval
from backtest.aux_summary import AuxSummary
from backtest.comparison import Arm, Comparison
from backtest.evaluation.intervals import Interval
from pipelines.commands.compare import AUX_COLUMNS, forecast_cells, show_forecasts

NONE = Interval(None, None, None, 0)


def arm(label, aux):
    empty = np.zeros((1, 1))
    return Arm(label, "a" * 16, empty, empty, empty, empty, empty, NONE, aux)


def forecast(**changes):
    values = {
        "runs": 2,
        "win_rate": win_interval(1100, 2000),
        "means": {"w_norm": 0.5, "tv_direction": 0.25, "advantage_var_magnitude": 0.0123},
        "quality": {"aux_auc": 0.55, "aux_shuffled_auc": 0.5, "aux_sd": None},
        "controls": 2,
        "conclusions": {"confirmed": 1, "gradient broken": 1},
    }
    return AuxSummary(**values | changes)


def test_a_row():
    cells = forecast_cells(arm("aux.alpha=true", forecast()))
    assert len(cells) == len(AUX_COLUMNS)
    assert cells[:6] == ["aux.alpha=true", "0.550", "0.500", "", "2,000", "0.550 [0.528, 0.572]"]
    assert cells[6:] == ["0.5", "25.0%", "0.012", "confirmed (1 of 2), gradient broken (1 of 2)"]


def test_an_arm_without_alpha_has_nothing_to_conclude():
    none = dict.fromkeys(("w_norm", "tv_direction", "advantage_var_magnitude"))
    found = forecast(means=none, conclusions={}, win_rate=win_interval(0, 0))
    cells = forecast_cells(arm("aux.alpha=false", found))
    assert cells[4:] == ["0", "", "", "", "", "no alpha"]


def test_the_table_shows_arms_that_have_a_forecast(capsys):
    arms = (arm("aux.enabled=false", None), arm("aux.enabled=true", forecast()))
    found = Comparison("X", ("2001-01-01",), (0,), arms, (NONE,), (NONE,))
    show_forecasts(found, 0.95)
    shown = capsys.readouterr().out
    assert "X: the direction forecast over all runs" in shown
    assert "aux.enabled=true" in shown and "aux.enabled=false" not in shown
    show_forecasts(Comparison("X", (), (0,), arms[:1], (), ()), 0.95)
    assert capsys.readouterr().out == ""
