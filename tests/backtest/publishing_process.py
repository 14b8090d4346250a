"""A process of its own for tests: writes folds of one study, publishes after each, may die.

`python -m tests.backtest.publishing_process LAKE STUDY FOLDS [MODULE.FUNCTION CALL]`: at the
given call of the given function the process exits on the spot, as if killed.
"""

import importlib
import os
import sys
from pathlib import Path

from backtest.lake import Lake
from backtest.publication import publish
from tests.backtest.fold_rows import write_fold

KILLED = 9


def die_at(place: str, call: int) -> None:
    """Replace a module's function by one that ends the process at its n-th call (from 1)."""
    module_name, function_name = place.rsplit(".", 1)
    module = importlib.import_module(module_name)
    function, calls = getattr(module, function_name), 0

    def counted(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call:
            os._exit(KILLED)
        return function(*args, **kwargs)

    setattr(module, function_name, counted)


if __name__ == "__main__":
    root, study, folds, *place = sys.argv[1:]
    if place:
        die_at(place[0], int(place[1]))
    for fold in range(int(folds)):
        write_fold(Lake(Path(root)), [1.0, 2.0], fold, study=study)
        publish(Lake(Path(root)))
