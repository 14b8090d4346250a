"""One line of the benchmark table, and how long things take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

REPEATS = 5  # the median of these, after one run that does not count


@dataclass(frozen=True)
class Row:
    """A figure with its unit; detail says how it was measured and against what."""

    name: str
    figure: float
    unit: str
    detail: str = ""


def wall_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median wall time of a call that returns when everything is done."""
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return median(seconds[1:])


def device_seconds(launch: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median of what a launch's event says its kernel took."""
    seconds = []
    for _ in range(repeats + 1):
        event = launch()
        event.wait()
        seconds.append((event.profile.end - event.profile.start) * 1e-9)
    return median(seconds[1:])
