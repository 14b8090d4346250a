"""How good the direction forecast is, on out-of-fold train rows; the shuffled control must fail."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from backtest.agent.aux_head import AuxFit, edges
from backtest.agent.weights import Floats

# Standard errors of an AUC without skill within which the control has to stay. Its labels are in
# random order, so nothing but a leak takes it further: chance does so once in 16,000 times.
CONTROL_ERRORS = 4.0
Report = dict[str, float | None]


def quality(fitted: AuxFit) -> Report:
    """Return the figures of the out-of-fold rows, by name; None where undefined.

    aux_rows: rows with a forecast and a label; aux_up, aux_tie: shares of them; aux_mean, aux_sd
    (ddof 0): of the forecast; aux_auc: of moves up against moves down, ties of the price left out;
    aux_auc_error: standard error of an AUC without skill; aux_shuffled_auc: of the control;
    aux_control_fails: 1 when the control found nothing, as it must.
    """
    start = edges(len(fitted.train))[1]
    known = np.flatnonzero(np.isfinite(fitted.labels))
    rows = known[known >= start]
    if not len(rows):
        return dict.fromkeys(NAMES, None) | {"aux_rows": 0.0}
    forecast, label = fitted.train[rows], fitted.labels[rows]
    found, error = auc(forecast, label)
    control, control_error = auc(fitted.shuffled[rows], fitted.shuffled_labels[rows])
    fails = None
    if control is not None and control_error is not None:
        fails = float(abs(control - 0.5) <= CONTROL_ERRORS * control_error)
    values = (
        float(len(rows)),
        float((label == 1).mean()),
        float((label == 0.5).mean()),
        float(forecast.mean(dtype=np.float64)),
        float(forecast.std(dtype=np.float64)),
        found,
        error,
        control,
        fails,
    )
    return dict(zip(NAMES, values, strict=True))


NAMES = (
    "aux_rows",
    "aux_up",
    "aux_tie",
    "aux_mean",
    "aux_sd",
    "aux_auc",
    "aux_auc_error",
    "aux_shuffled_auc",
    "aux_control_fails",
)


def auc(score: npt.NDArray[np.floating], label: Floats) -> tuple[float | None, float | None]:
    """Return P(score of a 1 > score of a 0), ties of the score counting half, and its error.

    Mann-Whitney's U from mid-ranks, exact: (sum of ranks of the ones - n1(n1 + 1)/2)/(n1*n0). The
    error is the standard error without skill, for rows that do not depend on each other:
    sqrt((n1 + n0 + 1)/(12*n1*n0)). None when a class is missing. Other labels than 0 and 1 do not
    count.
    """
    from scipy.stats import rankdata

    sided = (label == 0) | (label == 1)
    score, up = score[sided], label[sided] == 1
    ones, zeros = int(up.sum()), int((~up).sum())
    if not ones or not zeros:
        return None, None
    ranks = float(rankdata(score)[up].sum())
    value = (ranks - ones * (ones + 1) / 2) / (ones * zeros)
    return value, math.sqrt((ones + zeros + 1) / (12 * ones * zeros))
