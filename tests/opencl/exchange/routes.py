"""A small rollout, and every way by which its results can reach a learner on this machine."""

import numpy as np

from backtest import rng
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import N_BAR
from backtest.market.layout import Fill, Formula
from backtest.market.rough import rough_params, rough_tape
from opencl.devices import all_devices
from opencl.exchange import Copies, CudaMemory, HostMemory, Pinned, torch_device
from opencl.rollout import Rollout, Shape

BARS, STEPS, ENVS = 200, 40, 33
SHAPE = Shape((16, 12), 11, ("direction", "magnitude"))
POLICY = random_policy(SHAPE.hidden, SHAPE.atoms)
START = np.random.default_rng(0).integers(0, BARS - STEPS, (1, ENVS))
KEYS = rng.key(5, "X", "2001")[None]
COLUMNS = ("action", "reward", "equity", "end", "portfolio", "trace", "values", "slots")


def routes():
    """Device, way and learner."""
    found = []
    for device in all_devices():
        shared = [HostMemory] if device.kind == "cpu" else []
        found += [(device, way, "cpu") for way in (Copies, Pinned, *shared)]
        learner = torch_device(device)
        if learner != "cpu":
            found += [(device, way, learner) for way in (Copies, Pinned, CudaMemory)]
    return found


def label(route):
    device, way, learner = route
    return f"{device.kind}-{way.__name__}-{learner}"


def rollout(device):
    tape = rough_tape(rough_params(Formula.CALIBRATED, Fill.NEXT_OPEN), BARS, 1, 0)
    x = np.random.default_rng(1).normal(0, 1, (BARS, N_BAR)).astype(np.float32)
    return Rollout(device, tape, x, SHAPE)


def launch(run, to, stream=0, **asked):
    asked |= {"stage_round": stream, "epsilon": 0.5, "portfolio": True}
    return run.launch([POLICY], START, STEPS, KEYS, to=to, **asked)
