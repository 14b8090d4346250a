"""Which episodes walk which steps together, so that their bars fit one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from backtest.market.layout import Array


@dataclass(frozen=True)
class Pass:
    """Episodes and the steps they walk on one table.

    Attributes:
        group: episodes of one group walk all its passes, in order.
        episodes: int32[tiles, width], of one policy a row, -1 where a row has fewer.
        first_bar: bar of the tables' row 0, counted from each table's origin.
        bars: rows of the table.
        first_step: first step that is walked.
        stop_step: first step that is not.
    """

    group: int
    episodes: Array
    first_bar: int
    bars: int
    first_step: int
    stop_step: int


def passes(start: Array, steps: int, most: int, width: int) -> Iterator[Pass]:
    """Cut a walk into passes of at most `most` bars.

    Episodes whose starts lie close together form a group. A walk that is longer than a table is
    cut in time as well; then every table holds the spread of the starts and some steps.

    Args:
        start: int[P, E], decision bars of step 0, counted from the origin of the policy's table.
        steps: of every episode.
        most: bars that fit a table, at least 1.
        width: episodes of one policy that walk side by side.
    """
    flat = start.ravel()
    order = np.argsort(flat, kind="stable")
    begins = flat[order]
    span = int(begins[-1] - begins[0])
    if span + steps <= most:
        spread, length = span, steps
    elif steps <= most // 2:
        spread, length = most - steps, steps
    else:
        spread = min(span, most // 2)
        length = min(steps, most - spread)
    edges = [0]
    while edges[-1] < len(begins):
        edges.append(int(np.searchsorted(begins, begins[edges[-1]] + spread, side="right")))
    for group, (a, b) in enumerate(pairwise(edges)):
        episodes = _tiles(order[a:b], start.shape[1], width)
        first, last = int(begins[a]), int(begins[b - 1])
        for step in range(0, steps, length):
            stop = min(step + length, steps)
            yield Pass(group, episodes, first + step, last - first + stop - step, step, stop)


def _tiles(episodes: Array, each: int, width: int) -> Array:
    """Return episodes as rows of `width`, every row of one policy, in the given order within it.

    Episodes that begin at one bar then walk side by side and read the same rows of the table.
    """
    rows = []
    episodes = episodes[np.argsort(episodes // each, kind="stable")]
    policy = episodes // each
    for own in np.split(episodes, np.flatnonzero(np.diff(policy)) + 1):
        count = -(-len(own) // width) * width
        rows.append(np.concatenate([own, np.full(count - len(own), -1)]).reshape(-1, width))
    return np.concatenate(rows).astype(np.int32)
