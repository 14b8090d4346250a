"""`skillwalk ab`: two values of one setting over the same folds and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import (
    LAKE,
    ConfigFile,
    JsonFile,
    LakeFolder,
    Overrides,
    Profile,
    experiment,
    formula_note,
    source_name,
)
from pipelines.commands.run import EXIT, check, ended, execute
from pipelines.console import say, table, write_figures

if TYPE_CHECKING:
    from backtest.comparison import Arm, Comparison

EXAMPLE = "Example: skillwalk ab reward.formula=composite,calibrated --profile smoketest"
COLUMNS = (
    "",
    "runs",
    "Sharpe lowest",
    "quartile",
    "median",
    "quartile",
    "highest",
    "middle half [interval]",
    "net return",
    "exposure",
    "trades",
    "mean |position|",
)


def ab(
    setting: Annotated[
        str,
        typer.Argument(metavar="SECTION.KEY=A,B", help="One setting and its two values, in TOML."),
    ],
    config: ConfigFile = None,
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Run two settings as two studies into one lake and show what the difference is worth.

    Both use the same folds, seeds and random numbers. Sharpe ratios are those of every fold and
    seed out of sample. What was already computed is not computed again.
    """
    from backtest.comparison import compare

    key, values = two_values(setting)
    labels = (f"{key}={values[0]}", f"{key}={values[1]}")
    arms = [
        experiment(config, profile, [*(overrides or ()), label], lake, note=False)
        for label in labels
    ]
    if arms[0].study_id == arms[1].study_id:
        raise ConfigError(
            f"{setting}: both values give the same study; {key} does not change a result, or the "
            "values are equal"
        )
    for label, arm in zip(labels, arms, strict=True):
        say(f"{label}: study {arm.study_id}, {formula_note(arm.config)}")
        check(arm)
    source = source_name(config, profile)
    for label, arm in zip(labels, arms, strict=True):
        # a comparison asks what a reward does, also of one that the audit would refuse
        outcome = execute(arm, source, [*(overrides or ()), label], label, accept_reward=True)
        if outcome.status != "complete":
            say(ended(outcome))
            raise typer.Exit(EXIT[outcome.status])
    chance = arms[0].config.evaluation
    found = [
        compare(
            arms[0].lake,
            (arms[0].study_id, arms[1].study_id),
            labels,
            name,
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
        for name in arms[0].config.study.instruments
    ]
    for comparison in found:
        show(comparison, chance.confidence)
    write_figures(json, {"setting": setting, "instruments": [one.as_json() for one in found]})
    for comparison in found:
        say(comparison.summary)


def two_values(setting: str) -> tuple[str, tuple[str, str]]:
    """Split `key=a,b`; commas inside brackets, braces or quotes belong to a value.

    Raises:
        ConfigError: not one key with two values.
    """
    key, separator, text = setting.partition("=")
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    values = [part.strip() for part in parts]
    if not separator or "." not in key or len(values) != 2 or not all(values):
        raise ConfigError(
            f"{setting}: give one setting and two values, such as "
            "reward.formula=composite,calibrated"
        )
    return key.strip(), (values[0], values[1])


def show(found: Comparison, confidence: float) -> None:
    """Print both distributions and the probability of improvement."""
    from backtest.summary import Figure, counted, plain

    say()
    title = (
        f"{found.instrument} out of sample: Sharpe of "
        f"{counted(len(found.fold_keys), 'fold')} x {counted(len(found.seeds), 'seed')}"
    )
    table(COLUMNS, [cells(arm) for arm in (found.first, found.second)], title)
    values = (found.improvement, found.difference)
    chance, difference = (plain(Figure(i.value, i.low, i.high), bounds=True) for i in values)
    say(
        f"P({found.second.label} better) = {chance or 'undefined'}, 0.5 is chance; mean Sharpe "
        f"{found.second.label} minus {found.first.label} = {difference or 'undefined'}; "
        f"{confidence:.0%} intervals over seeds"
    )
    say()


def cells(arm: Arm) -> list[str]:
    """Return one row of the table; a run that never traded counts as Sharpe 0."""
    import numpy as np

    from backtest.summary import Figure, plain

    scores = arm.scores.ravel()
    spread = [f"{q:.2f}" for q in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1])]
    middle = Figure(arm.mean_sharpe.value, arm.mean_sharpe.low, arm.mean_sharpe.high)
    return [
        arm.label,
        str(scores.size),
        *spread,
        plain(middle, bounds=True),
        f"{np.nanmean(arm.net_return):.1%}",
        f"{np.nanmean(arm.exposure):.0%}",
        f"{np.nanmean(arm.n_trades):,.1f}",
        f"{np.nanmean(arm.position):.3g}",
    ]
