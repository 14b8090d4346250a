"""Options that several commands share, and the experiment that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backtest.errors import ConfigError
from pipelines.console import say

if TYPE_CHECKING:
    from backtest.config import Config
    from backtest.experiment import Experiment

DEFAULT_PROFILE = "smoketest"

ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        show_default=False,
        help="TOML file of the experiment. A relative source path in it begins at its folder.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", show_default=False, help="TOML file of the experiment."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        show_default=False,
        help=f"A shipped experiment instead of CONFIG; without either: {DEFAULT_PROFILE}.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        show_default=False,
        help="Change one setting; the value is TOML, a bare word is a string. May be repeated.",
    ),
]
LakeFolder = Annotated[
    Path, typer.Option("--lake", metavar="DIR", help="Folder of all outputs.", show_default=True)
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", show_default=False, help="Write the figures as JSON, too."
    ),
]
InstrumentName = Annotated[
    str | None,
    typer.Option(
        "--instrument",
        metavar="NAME",
        show_default=False,
        help="One instrument; without it all of them.",
    ),
]
LAKE = Path("lake")


def configuration(
    config: Path | None, profile: str | None, overrides: list[str] | None, *, note: bool = True
) -> Config:
    """Return the experiment that CONFIG or --profile names, with every --set applied.

    Prints what a changed reward formula brings with it, unless told not to.

    Raises:
        ConfigError: both are given, or what `backtest.config.load` refuses.
    """
    from backtest.config import load
    from backtest.config import profile as shipped

    if config is not None and profile is not None:
        raise ConfigError(f"{config} and --profile {profile}: give one of the two")
    path = config or shipped(profile or DEFAULT_PROFILE)
    found = load(path, overrides or ())
    keys = [override.partition("=")[0].strip() for override in overrides or ()]
    if note and "reward.formula" in keys:
        say(formula_note(found))
    return found


def source_name(config: Path | None, profile: str | None) -> str:
    """Return where a configuration comes from, for people."""
    return str(config) if config is not None else f"profile {profile or DEFAULT_PROFILE}"


def formula_note(config: Config) -> str:
    """Return the reward formula with the loss aversion that is in effect."""
    reward = config.reward
    return f"reward.formula = {reward.formula}, reward.loss_aversion = {reward.loss_aversion:g}"


def experiment(
    config: Path | None,
    profile: str | None,
    overrides: list[str] | None,
    lake: Path,
    *,
    note: bool = True,
) -> Experiment:
    """Return the experiment on its lake; see `configuration`."""
    from backtest.experiment import Experiment
    from backtest.lake import Lake

    found = configuration(config, profile, overrides, note=note)
    return Experiment(found, Lake(lake.absolute()))


def instruments(config: Config, name: str | None) -> list[str]:
    """Return the instruments a command works on.

    Raises:
        ConfigError: one that the experiment does not have.
    """
    known = config.study.instruments
    if name is None:
        return list(known)
    if name not in known:
        raise ConfigError(f"--instrument {name}: the experiment has {', '.join(known)}")
    return [name]
