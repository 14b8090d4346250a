"""`skillwalk audit`: does the reward rank policies by what they are worth? Before any training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.commands.folds import bars_of
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    InstrumentName,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    formula_note,
    instruments,
)
from pipelines.console import progress, say, table, write_figures

if TYPE_CHECKING:
    from backtest.audit.report import Audit

EXAMPLE = "Example: skillwalk audit --profile smoketest --set reward.formula=composite"
SHOWN = ("dsr", "asym", "dd_penalty", "idle", "hold_rent", "tx_cost")  # components, unweighted


def audit(
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    instrument: InstrumentName = None,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Gaussian bars only; no instrument is read.")
    ] = False,
    notional: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            show_default=False,
            help="Size of a full position, multiples of the capital, instead of the configured "
            "one; nothing is stored.",
        ),
    ] = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Score scripted policies of known skill under the reward; exit 1 when their order is wrong.

    They trade Gaussian bars and the train windows of each instrument through the market kernel.
    Rows go to table reward_audit of the lake. Bars that were not ingested are read from their
    source.
    """
    from backtest import identity
    from backtest.publication import publish
    from opencl.reward_audit import bars_audit, synthetic_audit, write_audits

    found = experiment(config, profile, overrides, lake, note=False)
    names = instruments(found.config, instrument)
    stored = notional is None and not synthetic
    done: list[Audit] = []
    say(formula_note(found.config))
    run_id = identity.run_id()
    with progress("audit", 1 + (0 if synthetic else len(names))) as step:
        step(0, "Gaussian bars")
        on_gaussian = synthetic_audit(found, names[0])
        done.append(on_gaussian)
        for place, name in enumerate(() if synthetic else names):
            step(1 + place, f"train windows of {name}")
            on_bars = bars_audit(found, name, bars_of(found, name), notional)
            done.append(on_bars)
            if stored:
                write_audits(found, name, [named(on_gaussian, name), on_bars], run_id)
    if stored:
        publish(found.lake)
    for one in done:
        show(one)
    write_figures(json, {"study_id": found.study_id, "audits": [figures(one) for one in done]})
    say(summary(done))
    raise typer.Exit(0 if all(one.order_ok for one in done) else 1)


def named(audit: Audit, instrument: str) -> Audit:
    """Return an audit on Gaussian bars under the name of another instrument of the study."""
    rows = tuple({**row, "instrument": instrument} for row in audit.rows)
    return replace(audit, instrument=instrument, rows=rows)


def show(audit: Audit) -> None:
    """Print scores, regime limits, broken requirements and warnings of one audit."""
    from backtest.audit.policies import POLICIES

    where = "Gaussian bars" if audit.source == "synthetic" else f"{audit.instrument} bars"
    say()
    rows = []
    for row in audit.rows:
        terms = [f"{row[f'mean_{name}']:+.3g}" for name in SHOWN]
        stands = row["order_ok"]
        rows.append(
            (
                row["horizon"],
                POLICIES[str(row["policy"])],
                f"{row['mean_reward']:+.4f}",
                *terms,
                f"{row['net_pnl']:+,.0f}",
                "" if stands is None else "yes" if stands else "NO",
            )
        )
    table(
        ("steps", "policy", "reward", *SHOWN, "net PnL", "in order"),
        rows,
        f"{audit.formula} on {where}, notional {audit.notional:.2f} x capital, means per step",
    )
    for share in audit.regime:
        say(
            f"{share['formula']} {share['factor']}: {share['floor']:.0%} of the bars at the floor "
            f"0.5, {share['ceiling']:.0%} at the ceiling 2"
        )
    for (horizon, policy), part in audit.ruined.items():
        say(f"ruined: {POLICIES[policy]} in {part:.0%} of the episodes of {horizon} steps")
    for gap in audit.failures:
        say(f"FAIL {gap.text}")
    for gap in audit.warnings:
        say(f"WARN {gap.text}")
    say(audit.summary)


def summary(audits: list[Audit]) -> str:
    """Return the last line: every audit's outcome in one."""
    formula = audits[0].formula
    parts = [
        f"{'Gaussian' if one.source == 'synthetic' else one.instrument} "
        f"{'ok' if one.order_ok else f'{len(one.failures)} of {len(one.required)} gaps FAIL'}"
        for one in audits
    ]
    words = "order holds" if all(one.order_ok for one in audits) else "order FAILS"
    warnings = sum(len(one.warnings) for one in audits)
    return f"audit {formula}: {words} ({', '.join(parts)}; {warnings} warnings)"


def figures(audit: Audit) -> dict[str, Any]:
    """Return what `--json` writes for one audit."""
    return {
        "instrument": audit.instrument,
        "formula": audit.formula,
        "source": audit.source,
        "order_ok": audit.order_ok,
        "notional": audit.notional,
        "rows": [dict(row) for row in audit.rows],
        "required": [vars(gap) | {"holds": gap.holds} for gap in audit.required],
        "warnings": [vars(gap) for gap in audit.warnings],
        "regime": [dict(share) for share in audit.regime],
        "ruined": [
            {"horizon": horizon, "policy": policy, "share": share}
            for (horizon, policy), share in audit.ruined.items()
        ],
        "summary": audit.summary,
    }
