"""Figures of many strategies: those of the float64 account, whatever the blocks."""

import re
from pathlib import Path

import numpy as np
import pytest

from backtest.config import parse
from backtest.data.bars import Bars
from backtest.data.targets import Targets
from backtest.errors import DataError, DeviceError
from opencl.simulate import GROUP
from opencl.strategies import FIGURES, block, score
from opencl.target_run import run_targets

N, COUNT = 400, 150  # bars; strategies: two whole groups and some
HOUR = 3_600_000_000_000


@pytest.fixture(scope="module")
def bars():
    close = 100 + np.cumsum(np.random.default_rng(0).normal(0, 0.5, N))
    return Bars.of_prices("X", (1 + np.arange(N)) * HOUR, np.append(close[:1], close[:-1]), close)


def config(**instrument):
    settings = {"max_position": 3.0, "commission": 0.05, "half_spread": 0.02, "calendar": "24/7"}
    settings |= {"tx_cost_multiplier": 1e-5} | instrument
    tables = {"instruments": {"X": settings}, "market": {"initial_capital": 100.0}}
    return parse(tables, ["evaluation.bootstrap=20"])


def positions(count=COUNT, seed=1):
    """Targets of one decimal, held for some bars; the first never trade, and only once."""
    draw = np.random.default_rng(seed)
    made = draw.integers(-3, 4, (N - 1, count)).astype(np.float32)
    made[draw.random((N - 1, count)) < 0.9] = np.nan
    made[0] = np.nan_to_num(made[0])
    row = np.maximum.accumulate(np.where(np.isnan(made), 0, np.arange(N - 1)[:, None]), axis=0)
    made = np.take_along_axis(made, row, axis=0)
    made[:, 0] = 0
    made[:, 1] = 2
    return made


def budget_of(device, bars, count):
    """Bytes in which this many strategies fit."""
    return block(device, count, N - 1, len(np.unique(bars.session[1:])))[1]


def test_figures_are_those_of_the_account(device, bars):
    targets = Targets.of_array(positions())
    found = score(config(), bars, targets, device)
    assert (found.blocks, len(found.names), set(found)) == (1, COUNT, set(FIGURES))
    sample = targets.read([str(i) for i in (0, 1, 2, 63, 64, COUNT - 1)])
    for outcome in run_targets(config(), bars, sample, device):
        i = int(outcome.name)
        metrics = outcome.metrics | {
            "final_equity": outcome.account.equity[-1],
            "costs": outcome.account.cost.sum(),
        }
        for name in FIGURES:
            wanted = metrics[name]
            wanted = np.nan if wanted is None else wanted
            assert found[name][i] == pytest.approx(wanted, rel=2e-3, abs=2e-4, nan_ok=True), name
    assert np.isnan(found["sharpe"][0]) and found["n_trades"][0] == 0
    assert found["exposure"][1] == 1 and found["turnover"][1] == 2
    assert len(np.unique(found["sharpe"])) > COUNT - 5


def test_blocks_change_nothing(device, bars):
    targets = Targets.of_array(positions())
    whole = score(config(), bars, targets, device)
    small = score(config(), bars, targets, device, budget_of(device, bars, GROUP))
    assert (whole.blocks, small.blocks) == (1, 3)
    assert small.planned < whole.planned
    for name in FIGURES:
        np.testing.assert_array_equal(whole[name], small[name])


def test_memory_grows_with_bars_and_strategies_alone(device):
    most = {steps: block(device, 10**9, steps, 10, 10**8)[0] for steps in (1000, 2000, 4000)}
    for steps in (1000, 2000):
        assert abs(most[2 * steps] - most[steps] // 2) <= GROUP
    width, planned = block(device, 10**9, 1000, 10, 10**8)
    assert width % GROUP == 0 and 0.9e8 < planned <= 1e8
    few, less = block(device, 100, 1000, 10, 10**8)
    assert few == 2 * GROUP and less == planned // width * few
    with pytest.raises(DeviceError, match="64 strategies of 4,000,000 steps take"):
        block(device, 100, 4_000_000, 10, 10**8)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float64])
def test_narrow_targets_are_the_same_targets(device, bars, dtype):
    whole = score(config(), bars, Targets.of_array(positions(8)), device)
    found = score(config(), bars, Targets.of_array(positions(8).astype(dtype)), device)
    for name in FIGURES:
        np.testing.assert_array_equal(found[name], whole[name])


def test_a_ruined_account_stops(device, bars):
    wild = config(point_value=50.0)
    found = score(wild, bars, Targets.of_array(np.full((N - 1, 2), 3.0)), device)
    (outcome, _) = run_targets(wild, bars, Targets.of_array(np.full((N - 1, 2), 3.0)), device)
    assert found["ruined"].tolist() == [1, 1] == [outcome.metrics["ruined"]] * 2
    assert found["final_equity"][0] == pytest.approx(outcome.account.equity[-1], rel=1e-5)
    assert np.isnan(found["cagr"]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.1, -3.1])
def test_what_no_account_can_hold_is_refused(device, bars, value):
    made = positions(3)
    made[7, 2] = value
    with pytest.raises(DataError, match=r"bar 7: 2 = .* within max_position = 3"):
        score(config(), bars, Targets.of_array(made), device)


def test_the_example_of_the_documentation_runs():
    text = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, object] = {}
    exec(example.replace("50_000", "2_000"), names)
    assert np.isfinite(names["found"]["sharpe"][names["best"]])
