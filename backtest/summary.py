"""What a study amounts to out of sample: one table an instrument, read from the published store.

`backtest.verdict` puts it into words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from backtest.ablation_table import Ablation, read_ablation
from backtest.errors import StoreError
from backtest.figures import UNDEFINED, Figure, counted, number, percent, plain
from backtest.lake import Lake
from backtest.queries import connect

if TYPE_CHECKING:
    import duckdb

POLICY = "chosen"
RIVAL = "buy_and_hold"
IMPROVEMENT = "p_improvement_over_"  # + baseline, a metric of the policy
# Shown in this order; baselines of other names follow by name.
BASELINES = (RIVAL, "flat", "inverse", "adx_trend", "random")
COLUMNS = (
    "",
    "net return",
    "CAGR",
    "Sharpe",
    "max drawdown",
    "trades",
    "open",
    "exposure",
    "P(policy better)",
)


@dataclass(frozen=True)
class Line:
    """One policy or baseline."""

    variant: str
    label: str
    figures: Mapping[str, Figure]

    def figure(self, name: str) -> Figure:
        """Return one metric; undefined when the store has no such row."""
        return self.figures.get(name, UNDEFINED)


@dataclass(frozen=True)
class Summary:
    """One instrument of a study, all complete folds together.

    Attributes:
        study_id: the study.
        instrument: its name.
        folds: number of folds by status.
        first: date of the first out-of-sample bar, UTC; None without a complete fold.
        last: date of the last one.
        sessions: behind every figure over time.
        seeds: number of training seeds.
        confidence: of the intervals; None when the study's settings were not recorded.
        lines: the chosen policy, then the baselines; empty without a complete fold.
        by_seed: Sharpe of every seed alone, with its interval over time.
        ablation: the policy's variants against one another; None without skill banks.
    """

    study_id: str
    instrument: str
    folds: Mapping[str, int]
    first: date | None
    last: date | None
    sessions: int
    seeds: int
    confidence: float | None
    lines: tuple[Line, ...]
    by_seed: tuple[Figure, ...]
    ablation: Ablation | None = None

    def line(self, variant: str) -> Line | None:
        """Return the policy (`chosen`) or a baseline."""
        return next((line for line in self.lines if line.variant == variant), None)

    @property
    def title(self) -> str:
        """Instrument, span and size, one line."""
        span = f"{self.first} to {self.last}, " if self.first else ""
        size = [
            counted(self.folds.get("complete", 0), "fold"),
            counted(self.sessions, "session"),
            counted(self.seeds, "seed"),
        ]
        return f"{self.instrument} out of sample: {span}{', '.join(size)}"

    @property
    def table(self) -> list[list[str]]:
        """Cells of every line, as `COLUMNS`."""
        policy = self.line(POLICY)
        rows = []
        for line in self.lines:
            better = policy.figure(IMPROVEMENT + line.variant) if policy else UNDEFINED
            rows.append(
                [
                    line.label,
                    percent(line.figure("net_return")),
                    percent(line.figure("cagr")),
                    plain(line.figure("sharpe"), bounds=True),
                    percent(line.figure("max_drawdown")),
                    number(line.figure("n_trades")),
                    number(line.figure("n_open")),
                    percent(line.figure("exposure"), digits=0),
                    plain(better, bounds=True) if line.variant != POLICY else "",
                ]
            )
        return rows

    @property
    def note(self) -> str:
        """What the intervals of the table are."""
        size = f"{self.confidence:.0%} i" if self.confidence else "I"
        return (
            f"{size}ntervals: policy over {counted(self.seeds, 'seed')} (interquartile mean), "
            "baselines over time; P compares Sharpe ratios fold by fold over all seeds, 0.5 is "
            "chance."
        )

    def as_json(self) -> dict[str, Any]:
        """Return every figure as JSON holds it."""
        return {
            "study_id": self.study_id,
            "instrument": self.instrument,
            "folds": dict(self.folds),
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
            "sessions": self.sessions,
            "seeds": self.seeds,
            "confidence": self.confidence,
            "lines": [
                {
                    "variant": line.variant,
                    "metrics": {name: f._asdict() for name, f in sorted(line.figures.items())},
                }
                for line in self.lines
            ],
            "sharpe_by_seed": [figure._asdict() for figure in self.by_seed],
            "ablation": self.ablation.as_json() if self.ablation else None,
        }


def summarize(
    lake: Lake, study_id: str | None = None, instrument: str | None = None
) -> list[Summary]:
    """Return the summary of every instrument of a study, by name.

    Args:
        lake: the lake.
        study_id: the study; None: the one that ran last.
        instrument: only this one.

    Raises:
        StoreError: no store, or nothing of that study or instrument in it; lists what there is.
    """
    with connect(lake) as connection:
        known = studies(connection)
        if not known:
            raise StoreError(f"{lake.store}: holds no study yet; run `skillwalk run`")
        study_id = study_id or known[0]
        if study_id not in known:
            raise StoreError(f"no study {study_id} in {lake.store}; it holds {', '.join(known)}")
        names = [
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT instrument FROM fold WHERE study_id = ? AND NOT superseded "
                "ORDER BY instrument",
                [study_id],
            ).fetchall()
        ]
        if instrument is not None and instrument not in names:
            raise StoreError(
                f"study {study_id} has no instrument {instrument}; it has {', '.join(names)}"
            )
        chosen = names if instrument is None else [instrument]
        return [_summary(connection, study_id, name) for name in chosen]


def studies(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return every study with current folds, the one that ran last first."""
    rows = connection.execute(
        "SELECT f.study_id FROM fold f LEFT JOIN run r USING (study_id) WHERE NOT f.superseded "
        "GROUP BY f.study_id ORDER BY max(r.started) DESC NULLS LAST, f.study_id"
    ).fetchall()
    return [study_id for (study_id,) in rows]


def _summary(connection: duckdb.DuckDBPyConnection, study_id: str, instrument: str) -> Summary:
    folds = dict(
        connection.execute(
            "SELECT status, count(*) FROM fold WHERE study_id = ? AND instrument = ? "
            "AND NOT superseded GROUP BY status",
            [study_id, instrument],
        ).fetchall()
    )
    first, last = connection.execute(
        "SELECT min(e.time)::DATE, max(e.time)::DATE FROM equity e JOIN fold f USING (fold_id) "
        "WHERE f.study_id = ? AND f.instrument = ? AND NOT f.superseded AND f.status = 'complete'",
        [study_id, instrument],
    ).fetchall()[0]
    rows = connection.execute(
        "SELECT variant, seed, name, value, low, high, n FROM metric "
        "WHERE scope = 'instrument' AND scope_id = ? || '/' || ? "
        "AND (policy_kind = 'baseline' OR variant = ?)",
        [study_id, instrument, POLICY],
    ).fetchall()
    # over all seeds (-2) where it was computed, else the one record there is
    shown: dict[tuple[str, str], int] = {}
    for variant, seed, name, *_ in rows:
        shown[variant, name] = min(seed, shown.get((variant, name), seed))
    figures: dict[str, dict[str, Figure]] = {}
    by_seed, sessions = {}, 0
    for variant, seed, name, value, low, high, n in rows:
        if seed == shown[variant, name]:
            figures.setdefault(variant, {})[name] = Figure(value, low, high)
        # a single record's Sharpe rests on sessions, figures over seeds on seeds
        if name == "sharpe" and seed >= -1:
            sessions = max(sessions, n or 0)
        if variant == POLICY and name == "sharpe" and seed >= 0:
            by_seed[seed] = Figure(value, low, high)
    confidence = _confidence(connection, study_id)
    order = [POLICY, *BASELINES, *sorted(set(figures) - {POLICY, *BASELINES})]
    return Summary(
        study_id=study_id,
        instrument=instrument,
        folds=folds,
        first=first,
        last=last,
        sessions=sessions,
        seeds=len(by_seed),
        confidence=confidence,
        lines=tuple(
            Line(v, label(v, shown.get((v, "sharpe"), -1)), figures[v])
            for v in order
            if v in figures
        ),
        by_seed=tuple(by_seed[seed] for seed in sorted(by_seed)),
        ablation=read_ablation(connection, study_id, instrument, confidence),
    )


def _confidence(connection: duckdb.DuckDBPyConnection, study_id: str) -> float | None:
    found = connection.execute("SELECT config FROM study WHERE study_id = ?", [study_id]).fetchall()
    settings = json.loads(found[0][0]) if found else {}
    value = settings.get("evaluation", {}).get("confidence")
    return None if value is None else float(value)


def label(variant: str, seed: int) -> str:
    """Return the name of a line for people; one draw of several is said to be one."""
    name = {POLICY: "policy"}.get(variant, variant.replace("_", " "))
    return f"{name} (draw {seed})" if variant == "random" and seed >= 0 else name
