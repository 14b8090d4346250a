"""Stage 0 of the scenario network: train the forecaster on train rows, then freeze it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backtest.agent import streams
from backtest.agent.scenario.forecaster import Forecaster
from backtest.agent.scenario.mixture import coverage, nll
from backtest.agent.scenario_layout import FORECASTER_INPUTS
from backtest.agent.weights import Floats
from backtest.config import Network
from backtest.errors import DataError

# The last fifth of the rows decides when to stop: the actor learns on the same train rows, and
# latents that remember their own labels would teach it to trust an oracle (2,500 rows, 400
# updates: 0.35 nats a step on them, 4.4 on others; stopped: 1.42 and 1.44).
HELD_OUT = 0.2
LEAST_HELD_OUT = 32  # with fewer rows all are trained on, to the last update
CHECK_EVERY = 20  # updates
CHECK_ROWS = 2048  # of the held-out rows, evenly spread
DECAY = 3.0  # decoupled weight decay (Loshchilov 2019)
BANDS = (0.5, 0.9)
_ROWS = 8192  # forecast at a time by `calibration`


@dataclass(frozen=True)
class FittedForecaster:
    """A frozen forecaster and how well it describes rows that it was not trained on."""

    state: dict[str, Floats]  # parameters by name, without the prefix "forecaster."
    updates: int  # taken by the parameters that were kept
    report: dict[str, float]  # of `calibration`, on the held-out rows


def train_forecaster(
    inputs: Floats,
    paths: Floats,
    network: Network,
    seed: int,
    stream: int,
    device: str = "cpu",
) -> FittedForecaster:
    """Train a forecaster by the likelihood of the mixture; the same arguments give the same bits.

    The parameters with the best likelihood on the held-out rows are kept; the H rows before those
    are left out, since their labels reach into them.

    Args:
        inputs: float32[n, >= 112], states or bar parts of the train rows; slots 0-111 are read.
        paths: float32[m, H] of `paths.future_paths` on the same rows, m <= n: rows behind it have
            no label inside the train window and are not read.
        network: sizes and the `forecaster_*` settings.
        seed: the run's seed.
        stream: hash32 of "instrument|fold key".
        device: torch device.

    Raises:
        DataError: there is no labelled row, or no update gave a finite likelihood.
    """
    if not len(paths):
        raise DataError(
            f"the train window holds no {network.horizon} bars after any bar; lengthen it or lower "
            "network.horizon"
        )
    held_out = int(len(paths) * HELD_OUT)
    held_out = held_out if held_out >= LEAST_HELD_OUT else 0
    last = len(paths) - held_out
    trained_on = last - network.horizon if held_out else last
    rows = np.linspace(last, len(paths) - 1, min(held_out, CHECK_ROWS)).astype(np.int64)

    def tensor(array: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    x, y = tensor(inputs[:trained_on, :FORECASTER_INPUTS]), tensor(paths[:trained_on])
    check = tensor(inputs[rows, :FORECASTER_INPUTS]), tensor(paths[rows])
    forecaster = Forecaster(network).to(device)
    forecaster.initialise(streams.generator(seed, stream, streams.Stage.FORECASTER, 0))
    draws = streams.generator(seed, stream, streams.Stage.FORECASTER, 1)
    shape = (network.forecaster_updates, network.forecaster_batch)
    batches = torch.from_numpy(draws.integers(0, trained_on, shape)).to(device)
    optimiser = _optimiser(forecaster, network.forecaster_rate)
    best, kept, updates = math.inf, forecaster.numpy_state(), 0
    for done in range(len(batches) + 1):
        if done:
            batch = batches[done - 1]
            loss = nll(forecaster(x[batch]), y[batch]).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if done % CHECK_EVERY and done < len(batches):
            continue
        # white noise, with which it begins, is a forecast too where there is nothing to learn
        with torch.no_grad():
            value = float(nll(forecaster(check[0]), check[1]).mean() if held_out else -done)
        state = forecaster.numpy_state()
        if not math.isfinite(value) or not all(np.isfinite(a).all() for a in state.values()):
            raise DataError(
                f"the forecaster's likelihood is not finite after {done} updates; lower "
                "network.forecaster_rate"
            )
        if value < best:
            best, kept, updates = value, state, done
    judged = slice(last, None) if held_out else slice(None)
    report = calibration(kept, inputs[: len(paths)][judged], paths[judged], network, device)
    return FittedForecaster(kept, updates, report)


def _optimiser(forecaster: Forecaster, rate: float) -> torch.optim.Optimizer:
    """Return AdamW whose decay leaves biases alone."""
    named = list(forecaster.named_parameters())
    groups = [
        {"params": [p for n, p in named if n.endswith("weight")], "weight_decay": DECAY},
        {"params": [p for n, p in named if n.endswith("bias")], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


@torch.no_grad()
def calibration(
    state: Mapping[str, Floats],
    inputs: Floats,
    paths: Floats,
    network: Network,
    device: str = "cpu",
) -> dict[str, float]:
    """Return how well a forecaster describes rows, of any window.

    Args:
        state: the forecaster's parameters by name.
        inputs: float32[n, >= 112], as of `train_forecaster`.
        paths: float32[m, H], 1 <= m <= n.
        network: sizes.
        device: torch device.

    Returns:
        `nll`, nats a step; `nll_noise`, the same of white noise with these rows' own deviation;
        `coverage_50` and `coverage_90`, the share of differences inside the central bands of the
        mixture, averaged over the horizon (calibrated: .5 and .9).
    """
    forecaster = Forecaster(network)
    forecaster.load_numpy(state)
    forecaster.to(device)
    total, inside = 0.0, np.zeros(len(BANDS))
    for first in range(0, len(paths), _ROWS):
        y = torch.from_numpy(paths[first : first + _ROWS]).to(device)
        forecast = forecaster(torch.from_numpy(inputs[first : first + len(y)]).to(device))
        total += float(nll(forecast, y).double().sum())
        inside += [float(coverage(forecast, y, band).double().mean()) * len(y) for band in BANDS]
    spread = max(float(paths.std(dtype=np.float64)), 1e-12)
    report = {
        "nll": total / len(paths),
        "nll_noise": 0.5 * math.log(2 * math.pi * math.e * spread**2),
    }
    return report | {
        f"coverage_{round(100 * band)}": float(value / len(paths))
        for band, value in zip(BANDS, inside, strict=True)
    }
