"""What the forecaster is trained on: the next H differences of each bar, in sigmas."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backtest.agent.weights import Floats
from backtest.features.prices import differences
from backtest.features.rolling import Floats as Doubles

CLIP = 10.0  # sigmas, as slots 84-111


def future_paths(
    open_: Doubles,
    close: Doubles,
    roll: npt.NDArray[np.bool_],
    sigma: Doubles,
    tick_size: float,
    horizon: int,
) -> Floats:
    """Return float32[n - horizon, horizon]: row b holds d[b+1] ... d[b+H] / max(sigma[b], tick).

    The last `horizon` bars have no row, so no label reaches beyond the bars that are given: give
    the train rows, and no label ends at or after their stop. Differences leave out the gaps at
    rolls; values are clipped to +-10.

    Args:
        open_: points, float64[n], as are close and sigma.
        close: points.
        roll: bool[n], the first bars of new contracts.
        sigma: points, the volatility known at each bar's close.
        tick_size: points, the least scale.
        horizon: H.
    """
    rows = max(len(close) - horizon, 0)
    if not rows:
        return np.zeros((0, horizon), np.float32)
    step = differences(open_, close, roll)
    ahead = np.lib.stride_tricks.sliding_window_view(step[1:], horizon)
    scale = np.maximum(sigma[:rows], tick_size)[:, None]
    return np.clip(ahead / scale, -CLIP, CLIP).astype(np.float32)
