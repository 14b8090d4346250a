"""`skillwalk ab`: values of one or two settings over the same folds and seeds."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import (
    LAKE,
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
    from collections.abc import Sequence

    from backtest.comparison import Arm, Comparison
    from backtest.experiment import Experiment

EXAMPLE = "Example: skillwalk ab reward.formula=composite,calibrated --profile smoketest"
MOST = 2  # settings; their product is run
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
AUX_COLUMNS = (
    "direction forecast",
    "AUC",
    "shuffled",
    "spread",
    "closed trades",
    "win rate [interval]",
    "|W|",
    "actions moved",
    "advantage variance",
    "verdict",
)


def ab(
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="SECTION.KEY=A,B... [CONFIG]",
            help="One or two settings, each with two values in TOML; then, if any, the TOML file "
            "of the experiment.",
        ),
    ],
    profile: Profile = None,
    overrides: Overrides = None,
    lake: LakeFolder = LAKE,
    json: JsonFile = None,
) -> None:
    """Run settings as studies into one lake and show what the difference is worth.

    All use the same folds, seeds and random numbers. Sharpe ratios are those of every fold and
    seed out of sample. What was already computed is not computed again. Two settings make four
    studies, measured against the first value of both: aux.alpha=false,true
    reward.scale_beta=0,0.5 shows what the direction forecast is worth on each of its two ways.
    """
    from backtest.comparison import compare

    pairs, config = changes(settings)
    arms = {
        label: experiment(config, profile, [*(overrides or ()), *values], lake, note=False)
        for label, values in combined(pairs)
    }
    given = " ".join(f"{key}={','.join(values)}" for key, values in pairs)
    check_distinct(given, pairs, list(arms.values()))
    for label, arm in arms.items():
        say(f"{label}: study {arm.study_id}, {formula_note(arm.config)}")
        check(arm)
    source = source_name(config, profile)
    changed = dict(combined(pairs))
    # a run with alpha finds the one without it, its reference, only when that is there already
    for label, arm in sorted(arms.items(), key=lambda item: item[1].config.aux.alpha):
        # a comparison asks what a reward does, also of one that the audit would refuse
        own = [*(overrides or ()), *changed[label]]
        outcome = execute(arm, source, own, label, accept_reward=True)
        if outcome.status != "complete":
            say(ended(outcome))
            raise typer.Exit(EXIT[outcome.status])
    first, *_ = arms.values()
    chance = first.config.evaluation
    found = [
        compare(
            first.lake,
            [arm.study_id for arm in arms.values()],
            list(arms),
            name,
            resamples=chance.bootstrap,
            confidence=chance.confidence,
        )
        for name in first.config.study.instruments
    ]
    forecasts = any(key.startswith("aux.") or key == "reward.scale_beta" for key, _ in pairs)
    for comparison in found:
        show(comparison, chance.confidence)
        if forecasts:
            show_forecasts(comparison, chance.confidence)
    write_figures(json, {"setting": given, "instruments": [one.as_json() for one in found]})
    for comparison in found:
        say(comparison.summary)


def changes(arguments: Sequence[str]) -> tuple[list[tuple[str, tuple[str, str]]], Path | None]:
    """Return the settings with their two values, and the experiment's file if one stands behind.

    Raises:
        ConfigError: no setting, too many, one twice, or not two values.
    """
    *front, last = arguments
    config = Path(last) if "=" not in last and front else None
    pairs = [two_values(setting) for setting in (front if config else arguments)]
    keys = [key for key, _ in pairs]
    if len(pairs) > MOST or len(set(keys)) != len(keys):
        raise ConfigError(
            f"{' '.join(keys)}: give one setting, or two different ones whose four combinations "
            "are run"
        )
    return pairs, config


def combined(pairs: Sequence[tuple[str, tuple[str, str]]]) -> list[tuple[str, list[str]]]:
    """Return label and overrides of every arm; the first value of each setting comes first."""
    choices = ([f"{key}={value}" for value in values] for key, values in pairs)
    return [(" ".join(own), list(own)) for own in product(*choices)]


def check_distinct(
    given: str, pairs: Sequence[tuple[str, tuple[str, str]]], arms: Sequence[Experiment]
) -> None:
    """Refuse arms that are one study.

    Raises:
        ConfigError: names the settings.
    """
    if len({arm.study_id for arm in arms}) < 2 ** len(pairs):
        keys = " or ".join(key for key, _ in pairs)
        both = "both values give" if len(pairs) == 1 else "two arms are"
        raise ConfigError(
            f"{given}: {both} the same study; {keys} does not change a result, or the values are "
            "equal"
        )


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
    """Print the distributions and the probabilities of improvement."""
    from backtest.figures import Figure, counted, plain

    say()
    title = (
        f"{found.instrument} out of sample: Sharpe of "
        f"{counted(len(found.fold_keys), 'fold')} x {counted(len(found.seeds), 'seed')}"
    )
    table(COLUMNS, [cells(arm) for arm in found.arms], title)
    first, *others = found.arms
    for arm, *values in zip(others, found.improvements, found.differences, strict=True):
        chance, difference = (plain(Figure(i.value, i.low, i.high), bounds=True) for i in values)
        say(
            f"P({arm.label} better) = {chance or 'undefined'}, 0.5 is chance; mean Sharpe "
            f"{arm.label} minus {first.label} = {difference or 'undefined'}; "
            f"{confidence:.0%} intervals over seeds"
        )
    say()


def show_forecasts(found: Comparison, confidence: float) -> None:
    """Print how good the direction forecast is in each arm, and whether it reaches the actions."""
    rows = [forecast_cells(arm) for arm in found.arms if arm.aux is not None]
    if not rows:
        return
    table(AUX_COLUMNS, rows, f"{found.instrument}: the direction forecast over all runs")
    say(
        "AUC of the forecast on train rows out of fold, and with shuffled labels (0.5 is chance); "
        f"win rate in the test windows with its {confidence:.0%} interval, to be above 0.505; |W| "
        "of the way around the network; total variation of the directions from the same run "
        "without alpha; variance of the advantages of magnitude"
    )
    say()


def forecast_cells(arm: Arm) -> list[str]:
    """Return one row of the table of forecasts."""
    found = arm.aux
    assert found is not None
    win, quality, means = found.win_rate, found.quality, found.means
    rate = "" if win.value is None else f"{win.value:.3f} [{win.low:.3f}, {win.high:.3f}]"
    return [
        arm.label,
        *(_digits(quality[name], ".3f") for name in ("aux_auc", "aux_shuffled_auc", "aux_sd")),
        f"{win.n:,}",
        rate,
        *(
            _digits(means[name], form)
            for name, form in (
                ("w_norm", ".3g"),
                ("tv_direction", ".1%"),
                ("advantage_var_magnitude", ".2g"),
            )
        ),
        found.text,
    ]


def _digits(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def cells(arm: Arm) -> list[str]:
    """Return one row of the table; a run that never traded counts as Sharpe 0."""
    import numpy as np

    from backtest.figures import Figure, plain

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
