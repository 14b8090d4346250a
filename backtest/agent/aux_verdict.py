"""Does the direction forecast reach the actions, and does it pay? Figures by epoch, and a verdict.

Training leaves the figures of each epoch in its curve; the fold's result turns them into the rows
of table aux_verdict, against the same run without alpha where there is one. Needs no torch itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from backtest.agent.actions import SPANS
from backtest.agent.protocols import Score
from backtest.agent.weights import Floats
from backtest.evaluation.intervals import CONFIDENCE, Interval, tails
from backtest.market.layout import BRANCHES, N_ACTIONS, Array, End

if TYPE_CHECKING:
    from torch import Tensor

    from backtest.agent.learner import C51Learner
    from backtest.agent.result import Curve

TARGET = 0.505  # win rate that has to be passed
ACTIONABLE = 1e-3  # least variance of the advantages of a learned branch, squared reward
SIZING = ("magnitude", "order", "urgency")  # branches whose advantages are looked at
PREFIX = "aux_"  # of these figures in a curve's row
Row = dict[str, Any]
Figures = Mapping[str, Any]  # one epoch, of `figure_rows`


def epoch_figures(learner: C51Learner, states: Tensor, validation: Score) -> Curve:
    """Return the figures of one epoch as entries of its curve row; none when nothing was counted.

    Args:
        learner: after the epoch's updates.
        states: [B, width], on which the variance of the advantages is taken.
        validation: the greedy policy in the validation window.
    """
    if validation.trades is None:
        return {}
    row: Curve = {"trades": validation.trades, "wins": validation.wins}
    row |= bypass_norms(learner.bypass_moments())
    names = [tuple(BRANCHES)[branch] for branch in learner.branches]
    q = learner.online.q_values(states, learner.branches)
    first = 0
    for name in names:
        values = q[:, first : first + BRANCHES[name]]
        first += BRANCHES[name]
        centred = values - values.mean(1, keepdim=True)
        row[f"variance_{name}"] = float(centred.square().mean())
    for name, shares in action_shares(validation.actions).items():
        if name in names:
            row |= {f"share_{name}_{i}": share for i, share in enumerate(shares)}
    return {PREFIX + name: value for name, value in row.items()}


def bypass_norms(moments: Floats | None) -> Curve:
    """Return the norms of the bypass's centred weights and of its Adam moments; None without it.

    Args:
        moments: float32[3, 4], weights and both moments.
    """
    if moments is None:
        return dict.fromkeys(("w_norm", "adam_m", "adam_v"), None)
    rows = moments.astype(np.float64)
    rows[0] -= rows[0].mean()
    norms = np.sqrt((rows**2).sum(axis=1)).tolist()
    return dict(zip(("w_norm", "adam_m", "adam_v"), norms, strict=True))


def without_figures(row: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return a curve's row without these figures."""
    return {name: value for name, value in row.items() if not name.startswith(PREFIX)}


def figure_rows(curves: Iterable[Mapping[str, float | None]]) -> list[Row]:
    """Return the figures of each epoch that has any, as JSON keeps them.

    Keys: epoch, trades, wins, w_norm, adam_m, adam_v, variance (by learned branch), share (lists by
    learned branch: how often the greedy policy took each value in the validation window).
    """
    rows = []
    for curve in curves:
        found = {n.removeprefix(PREFIX): v for n, v in curve.items() if n.startswith(PREFIX)}
        if not found:
            continue
        row: Row = {"epoch": curve["epoch"], "variance": {}, "share": {}}
        for name, value in found.items():
            kind, _, rest = name.partition("_")
            if kind == "variance":
                row["variance"][rest] = value
            elif kind == "share":
                row["share"].setdefault(rest.rpartition("_")[0], []).append(value)
            else:
                row[name] = value
        rows.append(row)
    return rows


def action_counts(action: Array, end: Array) -> Array:
    """Return how often each of the 13 values was taken by live rows, int64[13].

    Args:
        action: integers [..., 4].
        end: `End` [...].
    """
    taken = action[end != End.DEAD]
    return np.concatenate(
        [np.bincount(taken[:, i], minlength=size) for i, size in enumerate(BRANCHES.values())]
    )


def action_shares(counts: Sequence[int] | Array) -> dict[str, list[float]]:
    """Return the distribution of each branch's values from counts [13]; {} without counts."""
    total = np.asarray(counts, np.float64)
    if len(total) != N_ACTIONS or not total.any():
        return {}
    return {
        name: (total[start:stop] / total[start:stop].sum()).tolist()
        for name, (start, stop) in zip(BRANCHES, SPANS, strict=True)
    }


def total_variation(p: Sequence[float], q: Sequence[float]) -> float:
    """Return half the sum of |p - q|: the largest difference in the chance of any event."""
    return 0.5 * float(np.abs(np.subtract(p, q)).sum())


def win_interval(wins: int, trades: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the share of trades with a gain and its Wilson score interval (Wilson 1927)."""
    if not trades:
        return Interval(None, None, None, 0)
    from scipy.special import ndtri

    z2 = float(ndtri(tails(confidence)[1])) ** 2
    share = wins / trades
    centre = (share + z2 / (2 * trades)) / (1 + z2 / trades)
    spread = share * (1 - share) / trades + z2 / (4 * trades**2)
    reach = math.sqrt(z2 * spread) / (1 + z2 / trades)
    return Interval(share, centre - reach, centre + reach, trades)


def conclusion(figures: Figures, win: Interval, tv_direction: float | None) -> str | None:
    """Return what the figures say of the way from the forecast to the actions.

    `gradient broken`: the bypass's weights or their second moment are still zero, or not finite.
    `confirmed`: the interval of the win rate lies above 50.5 %, the advantages of every learned
    branch but direction vary by more than 1e-3, and the actions differ from the run without alpha
    where there is one. Else `routed but not actionable`. None without a bypass.
    """
    norm, second = figures["w_norm"], figures["adam_v"]
    if norm is None or second is None:
        return None
    if not (0 < norm < math.inf and 0 < second < math.inf):
        return "gradient broken"
    pays = win.low is not None and win.low > TARGET
    varies = all(figures["variance"].get(name, math.inf) > ACTIONABLE for name in SIZING)
    differs = tv_direction is None or tv_direction > 0
    return "confirmed" if pays and varies and differs else "routed but not actionable"


def verdict_row(
    figures: Figures,
    win: Interval,
    shares: Mapping[str, Sequence[float]],
    reference: Mapping[str, Sequence[float]] | None,
) -> Row:
    """Return one row of table aux_verdict, without its key and `reference_fold_id`.

    Args:
        figures: of the epoch.
        win: of the window that was played.
        shares: distribution of the greedy actions there by learned branch.
        reference: the same of the run without alpha; None: there is none.
    """
    distances = {
        f"tv_{name}": total_variation(shares[name], reference[name])
        if reference is not None and name in shares and name in reference
        else None
        for name in BRANCHES
    }
    return {
        "n_trades": win.n,
        "win_rate": win.value,
        "low": win.low,
        "high": win.high,
        "w_norm": figures["w_norm"],
        "adam_m": figures["adam_m"],
        "adam_v": figures["adam_v"],
        **distances,
        **{f"advantage_var_{name}": figures["variance"].get(name) for name in SIZING},
        "conclusion": conclusion(figures, win, distances["tv_direction"]),
    }


def epoch_rows(
    figures: Sequence[Figures], reference: Sequence[Figures] | None, confidence: float
) -> list[Row]:
    """Return the rows of every epoch, in the validation window, without their fold and seed.

    Args:
        figures: of each epoch, of `figure_rows`.
        reference: of the run without alpha.
        confidence: of the interval of the win rate.
    """
    others = {row["epoch"]: row["share"] for row in reference or ()}
    return [
        {
            "epoch": row["epoch"],
            **verdict_row(
                row,
                win_interval(row["wins"], row["trades"], confidence),
                row["share"],
                others.get(row["epoch"]),
            ),
        }
        for row in figures
    ]
