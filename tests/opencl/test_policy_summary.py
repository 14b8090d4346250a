"""What the summary of a seed says for people, and what it refuses."""

from types import SimpleNamespace

import numpy as np
import pytest

from backtest.config import Network
from backtest.errors import DataError
from opencl.policy_summary import network_name, trial_returns


def trained(*returns):
    validation = SimpleNamespace(returns=np.array(returns))
    return SimpleNamespace(best=SimpleNamespace(validation=validation))


def test_networks_by_name():
    assert network_name(Network()) == "mlp 128-128 x 51"
    scenario = Network(kind="scenario", hidden=(16, 12), atoms=11)
    assert network_name(scenario) == "scenario 16-12 x 11, S 8 H 6 L 8"


def test_returns_by_session_in_currency():
    rows = trial_returns(trained(0.01, -0.02), np.array([5, 5, 7]), 1000.0)
    assert rows == [{"session": 5, "pnl": 10.0}, {"session": 7, "pnl": -20.0}]
    with pytest.raises(DataError, match="2 validation returns for 1 sessions"):
        trial_returns(trained(0.01, -0.02), np.array([5, 5]), 1000.0)
