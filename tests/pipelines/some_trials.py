"""Trials of the runner's tests: importable, so that a spawned worker finds them."""

import os
import time
from pathlib import Path

from backtest.errors import DataError


def square(x: int) -> int:
    return x * x


def thread_setting(name: str) -> str | None:
    return os.environ.get(name)


def fails_at_two(x: int) -> int:
    if x == 2:
        raise DataError(f"bar {x} is broken")
    time.sleep(0.05)
    return x


class TwoPartError(Exception):
    """Cannot be unpickled: its class wants more than its arguments."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


def fails_in_two_parts(x: int) -> int:
    raise TwoPartError("it broke", f"bar {x}")


def mark(path: Path) -> int:
    """Leave a mark at each call; return the process that ran it."""
    with path.open("a", encoding="utf-8") as file:
        file.write("x")
    return os.getpid()


def reports(x: int) -> int:
    from opencl import trials

    trials.tell(trials.Report("ONE", "2000-02-21", x, f"seed {x}", 1.0))
    return x


def until_stopped(path: Path) -> bool:
    """Begin, then wait for the stop flag."""
    from opencl import trials

    path.touch()
    for _ in range(2000):
        if trials.stopped():
            path.with_suffix(".stopped").touch()
            return True
        time.sleep(0.01)
    return False
