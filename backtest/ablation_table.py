"""The ablation of a study: what skill banks were worth, against the same policy without them.

Read from the published store, one table an instrument, all complete folds and seeds together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backtest.evaluation.ablation import (
    COMPARISON,
    FINETUNE,
    INERT,
    NONE,
    NOT_ADOPTED,
    REFERENCE,
    VARIANTS,
)
from backtest.evaluation.intervals import CONFIDENCE, mean_interval
from backtest.evaluation.rows import CHOSEN
from backtest.figures import Figure, counted, percent, signed

if TYPE_CHECKING:
    import duckdb

ABLATION_COLUMNS = (
    "variant",
    "alpha",
    "adopted",
    "decisions changed",
    "Sharpe gained",
    "PnL gained a fold",
    "verdict",
)
GAINED, LOST, UNCLEAR = "gained", "lost", "no difference shown"
Row = dict[str, Any]


@dataclass(frozen=True)
class AblationLine:
    """One variant over all runs (folds x seeds).

    Attributes:
        variant: its name; `chosen` = what validation picked in each run.
        alphas: strengths in use, rising; empty without banks.
        runs: folds x seeds.
        adopted: runs in which it passed its gate; of `chosen`: in which it is not `none`.
        changed: share of the decisions that differ from `none`.
        sharpe: mean over folds of the gain, with its t interval over folds.
        pnl: the same of the net PnL, currency a fold.
        verdict: in words.
    """

    variant: str
    alphas: tuple[float, ...]
    runs: int
    adopted: int
    changed: float
    sharpe: Figure
    pnl: Figure
    verdict: str

    @property
    def cells(self) -> list[str]:
        """As `ABLATION_COLUMNS`."""
        if self.variant == NONE:
            return [NONE, *[""] * (len(ABLATION_COLUMNS) - 2), self.verdict]
        gated = "" if self.variant == FINETUNE else f"{self.adopted} of {self.runs}"
        return [
            self.variant,
            ", ".join(f"{alpha:g}" for alpha in self.alphas),
            gated,
            percent(Figure(self.changed)),
            signed(self.sharpe, ".2f"),
            signed(self.pnl, ",.0f"),
            self.verdict,
        ]


@dataclass(frozen=True)
class Ablation:
    """All variants of one instrument, `none` first and `chosen` last."""

    folds: int
    seeds: int
    confidence: float
    lines: tuple[AblationLine, ...]

    @property
    def title(self) -> str:
        """What the table is about, one line."""
        size = f"{counted(self.folds, 'fold')} x {counted(self.seeds, 'seed')}"
        return f"skill banks: each variant against the same policy without them, {size}"

    @property
    def table(self) -> list[list[str]]:
        """Cells of every line, as `ABLATION_COLUMNS`."""
        return [line.cells for line in self.lines]

    @property
    def note(self) -> str:
        """What the figures of the table are."""
        return (
            "adopted: runs whose gain on validation has an interval above zero; chosen: what "
            "validation picked in each run, and the policy played. finetune spends the same "
            "budget on training on. Gains are of the test windows, means over folds with "
            f"{self.confidence:.0%} t intervals; inert: not one decision differs."
        )

    def as_json(self) -> dict[str, Any]:
        """Return every figure as JSON holds it."""
        return {
            "folds": self.folds,
            "seeds": self.seeds,
            "variants": [
                {**vars(line), "sharpe": line.sharpe._asdict(), "pnl": line.pnl._asdict()}
                for line in self.lines
            ],
        }


def read_ablation(
    connection: duckdb.DuckDBPyConnection,
    study_id: str,
    instrument: str,
    confidence: float | None,
) -> Ablation | None:
    """Return the ablation of an instrument; None when its study has no skill banks.

    Args:
        connection: to a store.
        study_id: the study.
        instrument: its name.
        confidence: of the intervals; None: 95 %.
    """
    cursor = connection.execute(
        "SELECT a.*, f.n_bars FROM skill_ablation a JOIN fold f USING (fold_id) "
        "WHERE f.study_id = ? AND f.instrument = ? AND NOT f.superseded "
        "AND f.status = 'complete' ORDER BY f.fold_key, a.seed",
        [study_id, instrument],
    )
    names = [column[0] for column in cursor.description]
    return ablation_of(
        [dict(zip(names, row, strict=True)) for row in cursor.fetchall()], confidence or CONFIDENCE
    )


def ablation_of(rows: Sequence[Row], confidence: float) -> Ablation | None:
    """Return the ablation of rows of table skill_ablation with the bars of their folds.

    Args:
        rows: with n_bars, decisions of the run.
        confidence: of the intervals.
    """
    groups = {variant: [r for r in rows if r["variant"] == variant] for variant in VARIANTS}
    groups[CHOSEN] = [row for row in rows if row["chosen"]]
    if all(row["variant"] == NONE for row in rows):
        return None
    return Ablation(
        folds=len({row["fold_id"] for row in rows}),
        seeds=len({row["seed"] for row in rows}),
        confidence=confidence,
        lines=tuple(line_of(variant, own, confidence) for variant, own in groups.items() if own),
    )


def line_of(variant: str, rows: Sequence[Row], confidence: float) -> AblationLine:
    """Return the line of the runs of one variant, or of the chosen ones."""
    changed = sum(row["decisions_changed"] or 0 for row in rows)
    pnl = over_folds(rows, "delta_pnl", confidence)
    if variant == CHOSEN:
        adopted = sum(row["variant"] != NONE for row in rows)
    else:
        adopted = sum(row["adopted"] for row in rows)
    return AblationLine(
        variant=variant,
        alphas=tuple(sorted({row["alpha"] for row in rows if row["alpha"] is not None})),
        runs=len(rows),
        adopted=adopted,
        changed=changed / sum(row["n_bars"] for row in rows),
        sharpe=over_folds(rows, "delta_sharpe", confidence),
        pnl=pnl,
        verdict=words(variant, adopted, changed, pnl),
    )


def over_folds(rows: Sequence[Row], name: str, confidence: float) -> Figure:
    """Return the mean over folds of the mean over seeds, with its t interval over folds.

    Seeds of one fold trade the same bars: they are no independent evidence.
    """
    folds: dict[str, list[float]] = {}
    for row in rows:
        if row[name] is not None:
            folds.setdefault(row["fold_id"], []).append(row[name])
    means = np.array([np.mean(values) for values in folds.values()])
    found = mean_interval(means, confidence=confidence)
    return Figure(found.value, found.low, found.high)


def words(variant: str, adopted: int, changed: int, pnl: Figure) -> str:
    """Return what a line amounts to; a gain or a loss is one whose whole interval says so."""
    if variant == NONE:
        return REFERENCE
    if not changed:
        return INERT if variant != CHOSEN else "the policy without skills"
    outcome = UNCLEAR
    if pnl.low is not None and pnl.low > 0:
        outcome = GAINED
    elif pnl.high is not None and pnl.high < 0:
        outcome = LOST
    if variant == FINETUNE:
        return f"{COMPARISON}: {outcome}"
    if adopted:
        return outcome
    # nobody played it
    return f"{NOT_ADOPTED}: {outcome if outcome == UNCLEAR else f'would have {outcome}'}"
