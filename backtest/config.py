"""The experiment: frozen, typed sections read from TOML.

Unknown keys, wrong types and values out of range are one `ConfigError` that names the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, model_validator

from backtest.agent_sections import Aux, Learner, Network, SkillBank, Skills
from backtest.errors import ConfigError
from backtest.sections import (
    Audit,
    CsvFormat,
    Evaluation,
    Features,
    Folds,
    Instrument,
    IssuePolicies,
    Market,
    Reward,
    Runtime,
    Section,
    Study,
    Synthetic,
    check_units,
)

__all__ = [
    "Audit",
    "Aux",
    "Config",
    "CsvFormat",
    "Evaluation",
    "Features",
    "Folds",
    "Instrument",
    "IssuePolicies",
    "Learner",
    "Market",
    "Network",
    "Reward",
    "Runtime",
    "SkillBank",
    "Skills",
    "Study",
    "Synthetic",
    "load",
    "parse",
    "profile",
]

# The reward's loss aversion belongs to its formula: the literal design and ours were tuned apart.
LOSS_AVERSION = {"calibrated": 1.25, "composite": 1.5}


class Config(Section):
    """The whole experiment."""

    study: Study = Study()
    instrument: Instrument = Instrument()  # defaults for instruments without a table of their own
    instruments: Mapping[str, Instrument] = {}
    folds: Folds = Folds()
    features: Features = Features()
    market: Market = Market()
    reward: Reward = Reward()
    network: Network = Network()
    aux: Aux = Aux()
    skills: Skills = Skills()
    learner: Learner = Learner()
    evaluation: Evaluation = Evaluation()
    audit: Audit = Audit()
    runtime: Runtime = Runtime()

    def instrument_settings(self, name: str) -> Instrument:
        """Return the settings of one instrument: its own table, else the defaults."""
        return self.instruments.get(name, self.instrument)

    @property
    def reaches(self) -> dict[str, int]:
        """Return how many bars ahead each part looks, by the key that sets it."""
        reaches = {"learner.n_step": self.learner.n_step}
        if self.aux.enabled:
            reaches["aux.horizon"] = self.aux.horizon
        if self.network.kind == "scenario":
            reaches["network.horizon"] = self.network.horizon
        return reaches

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        for name, instrument in self.instruments.items():
            check_units(name, instrument, self.market)
        for key, bars in self.reaches.items():
            if bars > self.folds.horizon:
                raise ValueError(
                    f"{key} = {bars} exceeds folds.horizon = {self.folds.horizon}: the purge would "
                    "not cover what it looks ahead"
                )
        if self.skills.banks and self.network.kind != "scenario":
            raise ValueError(
                f'skills.banks extend the scenario network; set network.kind = "scenario" or '
                f"skills.banks = [] (network.kind is {self.network.kind})"
            )
        needed = self.folds.horizon + self.folds.fill_lag
        if self.folds.purge is not None and self.folds.purge < needed:
            raise ValueError(
                f"folds.purge = {self.folds.purge} is less than horizon + fill_lag = {needed}"
            )
        return self


def load(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML experiment and apply `section.key=value` overrides.

    A relative `source` of an instrument begins at the TOML file's folder; in an override, at the
    working folder.

    Raises:
        ConfigError: missing file, broken TOML, unknown key, wrong type or value out of range.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; pass a TOML file or --profile NAME") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    for table in (tables.get("instrument"), *children(tables.get("instruments"))):
        if isinstance(table, dict) and "source" in table:
            table["source"] = located(table["source"], path.resolve().parent)
    return parse(tables, overrides, where=str(path))


def children(table: object) -> list[object]:
    """Return the values of a table; none of anything else, which validation refuses."""
    return list(table.values()) if isinstance(table, dict) else []


def located(source: object, folder: Path) -> object:
    """Return a source with a relative path put behind `folder`; generators stay as they are."""
    if not isinstance(source, str) or source in ("", "synthetic") or source.startswith("example:"):
        return source
    return str(folder / Path(source).expanduser())


def parse(
    tables: dict[str, Any], overrides: Iterable[str] = (), *, where: str = "config"
) -> Config:
    """Validate nested tables after the overrides; see `load`."""
    keys = []
    for override in overrides:
        key, value = split_override(override)
        keys.append(key)
        if key.startswith("instrument") and key.endswith(".source"):
            value = located(value, Path.cwd())
        assign(tables, key, value)
    if "reward.formula" in keys and "reward.loss_aversion" not in keys:
        default = LOSS_AVERSION.get(str(tables["reward"]["formula"]))
        if default is not None:
            tables["reward"]["loss_aversion"] = default
    try:
        return Config.model_validate(as_tuples(tables))
    except ValidationError as error:
        raise ConfigError(f"{where}: {describe(error)}") from None


def as_tuples(value: Any) -> Any:
    """Return nested tables with TOML's arrays as tuples, which are what the sections hold."""
    if isinstance(value, Mapping):
        return {key: as_tuples(part) for key, part in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def split_override(override: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML, a bare word is a string."""
    key, separator, text = override.partition("=")
    if not separator or "." not in key:
        raise ConfigError(f"--set {override}: expected section.key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text.strip()


def assign(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested tables; validation finds unknown names."""
    *sections, last = key.split(".")
    for section in sections:
        tables = tables.setdefault(section, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--set {key}: {section} is a value, not a section")
    tables[last] = value


def describe(error: ValidationError) -> str:
    """Render pydantic's findings as `[section.key] what is allowed`, one clause each."""
    clauses = []
    for finding in error.errors():
        key = ".".join(str(part) for part in finding["loc"]) or "config"
        if finding["type"] == "extra_forbidden":
            clauses.append(f"[{key}] unknown key")
            continue
        message = finding["msg"].removeprefix("Value error, ")
        given = finding.get("input")
        shown = "" if isinstance(given, dict | BaseModel) else f" (given {given!r})"
        clauses.append(f"[{key}] {message}{shown}")
    return "; ".join(clauses)


PROFILES = Path(__file__).resolve().parent.parent / "profiles"


def profile(name: str) -> Path:
    """Return the TOML file of a shipped profile.

    Raises:
        ConfigError: lists the profiles that exist.
    """
    path = PROFILES / f"dqn-{name}.toml"
    if not path.is_file():
        known = sorted(p.stem.removeprefix("dqn-") for p in PROFILES.glob("dqn-*.toml"))
        raise ConfigError(f"--profile {name}: no such profile; choose one of {', '.join(known)}")
    return path
