"""Folds that failed: a result without rows, so that the store says so until there is a better one."""

from __future__ import annotations

from backtest.evaluation.fold_rows import fold_row
from backtest.experiment import Experiment
from backtest.manifest import FoldHeader, Manifest
from backtest.store import fold_result, write_fold_result

LONGEST = 400  # characters of a reason


def finished(experiment: Experiment, instrument: str, key: str) -> Manifest | None:
    """Return the result of a fold; None when there is none or the last attempt failed."""
    fold = experiment.fold(instrument, key)
    if fold.index < 0:
        return None
    fold_id = experiment.fold_id(instrument, fold)
    header = FoldHeader(experiment.study_id, instrument, key, fold_id, "")
    found = fold_result(experiment.lake, header)
    return None if found is None or found.status == "failed" else found


def record_failure(
    experiment: Experiment, instrument: str, key: str, run_id: str, reason: str
) -> None:
    """Record a failed fold; a result that is there stays."""
    fold = experiment.fold(instrument, key)
    if fold.status == "skipped" or finished(experiment, instrument, key) is not None:
        return
    fold_id = experiment.fold_id(instrument, fold)
    row = fold_row(fold, experiment.bars(instrument), None)
    row |= {"status": "failed", "reason": reason[:LONGEST]}
    header = FoldHeader(experiment.study_id, instrument, key, fold_id, run_id)
    write_fold_result(experiment.lake, header, {"fold": [row]})
