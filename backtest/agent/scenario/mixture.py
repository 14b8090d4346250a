"""The forecaster's likelihood, and how often its bands hold what comes.

Scenarios are mixed as whole paths: log p(d) = logsumexp_s(log w_s + sum_h log N(d_h; mu, U^2)).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from backtest.agent.scenario.forecaster import Forecast

# Sigmas; added to U in quadrature. Prices move in ticks, so a run of unchanged closes would
# otherwise have an infinite likelihood under a scenario that stands still.
RESOLUTION = 0.05


def deviation(forecast: Forecast) -> Tensor:
    """Return the standard deviations [B, S, H], sigmas."""
    return (torch.exp(2 * forecast.log_u) + RESOLUTION**2).sqrt()


def nll(forecast: Forecast, path: Tensor) -> Tensor:
    """Return the negative log-likelihood of each path a step, [B], nats.

    Args:
        forecast: scenarios of B bars.
        path: [B, H], differences in sigmas.
    """
    sd = deviation(forecast)
    z = (path[:, None] - forecast.mu) / sd
    log_normal = -0.5 * (z * z + math.log(2 * math.pi)) - sd.log()
    return -(forecast.log_weight + log_normal.sum(-1)).logsumexp(-1) / path.shape[1]


def probability_below(forecast: Forecast, path: Tensor) -> Tensor:
    """Return the mixture's distribution function at each difference, [B, H]."""
    z = (path[:, None] - forecast.mu) / deviation(forecast)
    mixed: Tensor = (forecast.log_weight.exp()[..., None] * torch.special.ndtr(z)).sum(1)
    return mixed


def coverage(forecast: Forecast, path: Tensor, share: float) -> Tensor:
    """Return the fraction of differences [H] inside the central band of probability `share`."""
    below = probability_below(forecast, path)
    return ((below - 0.5).abs() <= share / 2).float().mean(0)
