"""Given targets through the kernel, on an account worked out by hand."""

import numpy as np
import pytest

from backtest.config import parse
from backtest.data.bars import Bars
from backtest.data.targets import Targets
from opencl.target_run import run_targets

HOUR = 3_600_000_000_000


def bars(close, open_, roll=()):
    n = len(close)
    close, open_ = np.array(close, float), np.array(open_, float)
    high, low = np.maximum(close, open_), np.minimum(close, open_)
    session = (18262 + np.arange(n)).astype(np.int32)
    time = 1_577_836_800_000_000_000 + (1 + np.arange(n)) * 24 * HOUR
    rolls = np.isin(np.arange(n), roll)
    return Bars("X", time, open_, high, low, close, np.ones(n), rolls, session)


def config(**instrument):
    settings = {"max_position": 3.0, "commission": 0.5, "half_spread": 0.25}
    settings |= {"tx_cost_multiplier": 0.0} | instrument
    tables = {"instruments": {"X": settings}, "market": {"initial_capital": 1000.0}}
    return parse(tables, ["evaluation.bootstrap=50"])


def targets(*columns, first=0):
    names = tuple(f"s{i}" for i in range(len(columns)))
    return Targets(first, names, np.array(columns, float).T, 0)


PRICES = ([100, 102, 101, 105, 104], [100, 101, 103, 102, 105])


def test_the_account_is_the_one_worked_by_hand(device):
    # bought 2 at 101, sold 3 at 102, bought 1 at 105; 0.75 a unit and fill
    (found,) = run_targets(config(), bars(*PRICES), targets([2, 2, -1, 0]), device)
    account = found.account
    assert account.bar.tolist() == [1, 2, 3, 4]
    assert account.position.tolist() == [2, 2, -1, 0]
    assert account.gross.tolist() == [2, -2, -1, 0]
    assert account.cost.tolist() == [1.5, 0, 2.25, 0.75]
    assert account.equity.tolist() == [1000.5, 998.5, 995.25, 994.5]
    assert found.metrics["n_trades"] == 2
    assert found.metrics["turnover"] == 6
    assert found.metrics["net_return"] == pytest.approx(-0.0055)
    assert found.metrics["exposure"] == 0.75
    assert account.liquidation_cost == 0
    assert found.difference < 1e-3


def test_strategies_and_windows_stand_alone(device):
    shared = bars(*PRICES)
    both = run_targets(config(), shared, targets([1, -1, 0], [0, 0, 2], first=1), device)
    for place, wanted in enumerate(([1, -1, 0], [0, 0, 2])):
        (alone,) = run_targets(config(), shared, targets(wanted, first=1), device)
        assert np.array_equal(alone.account.equity, both[place].account.equity)
        assert alone.sharpe == both[place].sharpe
    assert both[0].account.bar.tolist() == [2, 3, 4]
    assert both[1].account.liquidation_cost == 2 * 0.75


def test_a_roll_earns_nothing_and_costs_two_fees(device):
    # the contract of bar 2 trades 10 points higher; only 1 point of the move is earned
    rolled = bars([100, 100, 111], [100, 100, 110], roll=(2,))
    (found,) = run_targets(config(), rolled, targets([1, 1]), device)
    assert found.account.gross.tolist() == [0, 1]
    assert found.account.cost.tolist() == [0.75, 1.5]


def test_lots_round_toward_the_position_held(device):
    (found,) = run_targets(config(lot_size=1.0), bars(*PRICES), targets([2.9, -0.5]), device)
    assert found.account.position.tolist() == [2, 0]


def test_a_price_below_zero_is_a_price(device):
    (found,) = run_targets(
        config(tx_cost_multiplier=0.01), bars([1, -2, -3], [1, -1, -2]), targets([-1, -1]), device
    )
    assert found.account.gross.tolist() == [1, 1]
    assert found.account.cost.tolist() == pytest.approx([0.75 + 0.01, 0])
