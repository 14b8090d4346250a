"""What a lake still lacks for a study: feature files, fold results; and folds that failed."""

from __future__ import annotations

from backtest.evaluation.fold_rows import fold_row
from backtest.experiment import Experiment
from backtest.lake import read_table
from backtest.manifest import FoldHeader
from backtest.splits import Fold
from backtest.store import fold_result, write_fold_result

LONGEST = 400  # characters of a reason


def stale_windows(experiment: Experiment, instrument: str) -> list[str]:
    """Return the windows with bars whose feature file is missing or was made of other bars."""
    import pyarrow.parquet as pq

    stale = []
    for key, window in experiment.windows(instrument).items():
        path = experiment.lake.features(experiment.study_id, instrument, key)
        if not window:
            continue
        bars = experiment.rows_hash(instrument, window.stop).encode()
        if not path.is_file() or (pq.read_schema(path).metadata or {}).get(b"bars_hash") != bars:
            stale.append(key)
    return stale


def finished(experiment: Experiment, instrument: str, fold: Fold) -> bool:
    """Return whether a fold has a result with every seed of the configuration."""
    found = fold_result(experiment.lake, header(experiment, instrument, fold))
    # a partial window may end without another bar: the next one begins
    if found is None or found.status != fold.status:
        return False
    seeds = set(read_table(found.path("policy"), ["seed"])["seed"].to_pylist())
    return seeds.issuperset(experiment.config.study.seeds)


def record_failure(
    experiment: Experiment, instrument: str, fold: Fold, run_id: str, reason: str
) -> None:
    """Record a failed fold: a result without rows, which a better one replaces.

    A result that is there stays.
    """
    owner = header(experiment, instrument, fold, run_id)
    found = fold_result(experiment.lake, owner)
    if fold.status == "skipped" or (found is not None and found.status != "failed"):
        return
    row = fold_row(fold, experiment.bars(instrument), None)
    row |= {"status": "failed", "reason": reason[:LONGEST]}
    write_fold_result(experiment.lake, owner, {"fold": [row]})


def header(experiment: Experiment, instrument: str, fold: Fold, run_id: str = "") -> FoldHeader:
    """Return whose result a fold's is."""
    fold_id = experiment.fold_id(instrument, fold)
    return FoldHeader(experiment.study_id, instrument, fold.key, fold_id, run_id)
