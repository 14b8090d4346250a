"""The results of folds: policies and baselines through their test windows, into Parquet.

All folds, seeds and variants run in one rollout, the baselines of a fold in one simulation; see
`opencl.plays` and `opencl.out_of_sample`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest.evaluation.ablation import ablation_row, picks
from backtest.evaluation.baselines import RANDOM
from backtest.evaluation.fold_rows import feature_rows, fold_row
from backtest.evaluation.rows import (
    CHOSEN,
    DETERMINISTIC_SEED,
    Row,
    chosen_rows,
    component_rows,
    equity_columns,
    metric_rows,
    over_seeds,
    stacked,
    trade_columns,
)
from backtest.experiment import Experiment
from backtest.features.table import feature_hash
from backtest.manifest import FoldHeader, Manifest
from backtest.store import write_fold_result
from opencl.aux_rows import aux_tables
from opencl.out_of_sample import Episode, OutOfSample
from opencl.plays import Entry, Played, play
from opencl.seed_rows import seed_rows
from opencl.variants import SeedSummary, load_variants, seed_summaries

# An episode with the seed, variant and policy_kind of its rows.
Labelled = tuple[dict[str, Any], Episode]
Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class FoldResult:
    """What was written of a fold, and figures for people.

    Attributes:
        manifest: of the files.
        learned: metrics by seed and variant.
        picks: the variant that validation chose, by seed.
        baselines: metrics of the deterministic ones by name.
        ablation: rows of table skill_ablation.
    """

    manifest: Manifest
    learned: Mapping[tuple[int, str], Metrics]
    picks: Mapping[int, str]
    baselines: Mapping[str, Metrics]
    ablation: Sequence[Row]

    @property
    def chosen(self) -> dict[int, Metrics]:
        """Metrics of the chosen variants, by seed."""
        return {seed: self.learned[seed, variant] for seed, variant in self.picks.items()}


@dataclass(frozen=True)
class Opened:
    """What the evaluation of a fold reads.

    Attributes:
        header: of its result.
        window: its test window.
        summaries: of every seed.
        entries: the variants of each seed in this window.
    """

    header: FoldHeader
    window: OutOfSample
    summaries: Sequence[SeedSummary]
    entries: Sequence[Entry]

    @classmethod
    def of(cls, experiment: Experiment, instrument: str, fold_key: str, run_id: str) -> Opened:
        """Read policies, banks and the test window of a fold; see `evaluate_folds`."""
        fold = experiment.open_fold(instrument, fold_key)
        fold_id = experiment.fold_id(instrument, fold)
        header = FoldHeader(experiment.study_id, instrument, fold_key, fold_id, run_id)
        summaries = seed_summaries(experiment, instrument, fold_key, fold_id)
        loaded = [load_variants(experiment, summary) for summary in summaries]
        window = OutOfSample.open(experiment, instrument, fold, loaded[0][0].policy)
        return cls(header, window, summaries, [Entry(window, variants) for variants in loaded])


def evaluate_fold(
    experiment: Experiment, instrument: str, fold_key: str, run_id: str
) -> FoldResult:
    """Evaluate one fold; see `evaluate_folds`."""
    (found,) = evaluate_folds(experiment, instrument, [fold_key], run_id)
    return found


def evaluate_folds(
    experiment: Experiment, instrument: str, fold_keys: Sequence[str], run_id: str
) -> Iterator[FoldResult]:
    """Play policies and baselines through the test windows of folds and write their results.

    All are played together, or as many as one launch may write. A fold's result does not depend on
    those beside it.

    Raises:
        DataError: a policy or its banks are missing, or device and host do not agree.
        StoreError: a file is missing or damaged, or a bank is of other weights.
    """
    folds = [Opened.of(experiment, instrument, key, run_id) for key in fold_keys]
    entries = [entry for fold in folds for entry in fold.entries]
    runs = play(entries)
    for fold in folds:
        yield _result(experiment, fold, {s.seed: next(runs) for s in fold.summaries})


def _result(
    experiment: Experiment, fold: Opened, played: Mapping[int, Sequence[Played]]
) -> FoldResult:
    """Write the result of a fold from what its seeds played."""
    window, summaries, run_id = fold.window, fold.summaries, fold.header.run_id
    bars = experiment.bars(window.instrument)
    ablation = [row for seed, runs in played.items() for row in ablation_rows(window, seed, runs)]
    chosen = picks(ablation)
    learned = {(seed, run.variant.name): run for seed, runs in played.items() for run in runs}
    turnover = np.mean([learned[pick].episode.metrics["turnover"] for pick in chosen.items()])
    fixed, random = window.baselines(float(turnover) / window.steps)
    recorded = [
        seed_rows(summary, played[summary.seed], run_id, experiment.config.learner.branches)
        for summary in summaries
    ]
    tables = {
        "fold": [fold_row(window.market.fold, bars, feature_hash(window.table))],
        **{name: [row for rows in recorded for row in rows[name]] for name in recorded[0]},
        "skill_ablation": ablation,
        **aux_tables(experiment, window, summaries, played),
        "feature_stat": feature_rows(window.table, window.market.fold, window.market.scaler),
        **_episode_tables(window, learned, chosen, fixed, random),
    }
    return FoldResult(
        manifest=write_fold_result(experiment.lake, fold.header, tables),
        learned={key: dict(run.episode.metrics) for key, run in learned.items()},
        picks=chosen,
        baselines={name: dict(episode.metrics) for name, episode in fixed.items()},
        ablation=ablation,
    )


def ablation_rows(window: OutOfSample, seed: int, runs: Sequence[Played]) -> list[Row]:
    """Return the rows of table skill_ablation of one seed; the first run is `none`."""
    chance, reference = window.config.evaluation, runs[0].outcome
    return [
        {
            "seed": seed,
            **ablation_row(
                run.variant.entry, run.outcome, reference, window.session, window.key, chance
            ),
        }
        for run in runs
    ]


def _episode_tables(
    window: OutOfSample,
    learned: Mapping[tuple[int, str], Played],
    chosen: Mapping[int, str],
    fixed: Mapping[str, Episode],
    random: Sequence[Episode],
) -> dict[str, Any]:
    """Return the tables equity, trade, metric and reward_component."""
    policies: list[Labelled] = [
        ({"seed": seed, "variant": variant, "policy_kind": "learned"}, run.episode)
        for (seed, variant), run in learned.items()
    ]
    baselines: list[Labelled] = [
        ({"seed": DETERMINISTIC_SEED, "variant": name, "policy_kind": "baseline"}, e)
        for name, e in fixed.items()
    ]
    draws: list[Labelled] = [
        ({"seed": draw, "variant": RANDOM, "policy_kind": "baseline"}, e)
        for draw, e in enumerate(random)
    ]
    metric: list[Row] = []
    for key, e in (*policies, *baselines, *draws):
        metric += metric_rows(e.metrics, key, window.sessions, e.intervals)
    metric += chosen_rows(metric, chosen)
    groups: dict[tuple[str, str], list[Metrics]] = {}
    for key, e in (*policies, *draws):
        groups.setdefault((key["policy_kind"], key["variant"]), []).append(e.metrics)
    groups["learned", CHOSEN] = [learned[pick].episode.metrics for pick in chosen.items()]
    for (kind, variant), values in groups.items():
        label = {"variant": variant, "policy_kind": kind}
        metric += over_seeds([values], label, window.key, window.config.evaluation)
    shown = [*policies, *baselines, draws[0]]
    return {
        "equity": stacked([equity_columns(e.account, key) for key, e in shown]),
        "trade": stacked([trade_columns(e.account, window.table, key) for key, e in shown]),
        "metric": metric,
        "reward_component": [
            row
            for key, e in shown
            for row in component_rows(
                window.tape.params, e.trace, {"seed": key["seed"], "variant": key["variant"]}
            )
        ],
    }
