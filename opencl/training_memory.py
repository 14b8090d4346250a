"""What one training run will take of a device, computed before anything is allocated."""

from __future__ import annotations

from backtest.agent.weights import N_BAR
from backtest.config import Config
from backtest.market.layout import BAR, STATE_DIM
from opencl.devices import Device
from opencl.exchange.learner import torch_device
from opencl.memory import Planned
from opencl.rollout.outputs import forms, size
from opencl.rollout.play import BUDGET_SHARE
from opencl.rollout.scenario_tables import bytes_of_a_bar
from opencl.rollout.sizes import Sizes
from opencl.rollout.tables import FLOAT


def training_memory(config: Config, device: Device, train: int, validation: int) -> Planned:
    """Return the bytes of one seed of a fold.

    The learner's part is counted where torch trains on the device itself, and on a CPU, which has
    one memory for everything.

    Args:
        config: of the study.
        device: plays, and learns if it can.
        train: bars of the train window.
        validation: bars of the validation window.
    """
    from backtest.agent.replay import TABLE_BYTES, row_bytes
    from opencl.training import shape

    network, learner = config.network, config.learner
    played = shape(config)
    sizes = Sizes(played, device.kind == "gpu", device.local_memory, device.name)
    scenario = network.kind == "scenario"
    each = sizes.bar_row * FLOAT
    if scenario:
        each = bytes_of_a_bar(sizes, 1, network.forecaster_hidden)
    steps = min(learner.episode_steps, train - 1)
    outputs = forms(steps, learner.envs, len(played.heads), ("portfolio", "trace"))
    parts = {
        "bars and states": (train + validation) * (BAR.dtype.itemsize + FLOAT + N_BAR * FLOAT),
        "bar tables": min(train * each, device.global_memory // BUDGET_SHARE),
        "experience": size(outputs),
    }
    if device.kind == "cpu" or torch_device(device) == "cuda":
        stack = network.stack_size if scenario else 1
        context = train * played.step_dim * FLOAT if scenario else 0
        parts |= {
            "replay": learner.replay_rows * row_bytes(stack),
            "learner's states": train * STATE_DIM * FLOAT,
            # what does not fit is computed when it is drawn
            "contexts": context if context <= TABLE_BYTES else 0,
        }
    return Planned(parts)
