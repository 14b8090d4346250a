"""One line of the benchmark table, and how long things take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

REPEATS = 5  # the median of these, after one run that does not count
TIMES = "times"  # the unit of a ratio: how many times as fast as a peer we are


@dataclass(frozen=True)
class Row:
    """A figure with its unit; detail says how it was measured and against what.

    A figure that is one point of a curve also says which: `series` is the line's label, `axis` what
    runs along x ("envs", "bars", "strategies", "slots", ...), `x` the place on it. Rows with the
    same axis become one picture, with a panel for each unit. A row whose unit is `TIMES` becomes a
    bar of the picture of peers.

    Attributes:
        roofline: share of the peak that bounds it, as `roofline.share` words it.
        goal: a key of `goals.GOALS`; the figure is then compared with that goal.
    """

    name: str
    figure: float
    unit: str
    detail: str = ""
    series: str = ""
    axis: str = ""
    x: float | None = None
    roofline: str = ""
    goal: str = ""

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; a figure that was not measured is null."""
        return asdict(self) | {"figure": None if self.figure != self.figure else self.figure}


def wall_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median wall time of a call that returns when everything is done."""
    return alternating(work, repeats=repeats)[0]


def alternating(*works: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Return the median wall time of each call; they take turns, so what runs beside hits all."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, taken in zip(works, seconds, strict=True):
            begin = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begin)
    return [median(taken[1:]) for taken in seconds]


def device_seconds(launch: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median of what a launch's event says its kernel took."""
    seconds = []
    for _ in range(repeats + 1):
        event = launch()
        event.wait()
        seconds.append((event.profile.end - event.profile.start) * 1e-9)
    return median(seconds[1:])
