"""Who made a row: study_id, fold_id, run_id, and the provenance stored beside them.

Ids are the first 16 hexadecimal digits (64 bits) of a SHA-256, short enough for people and paths.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtest.errors import StoreError

if TYPE_CHECKING:
    from backtest.config import Config
    from backtest.data.bars import Bars

ID_DIGITS = 16
PACKAGE = Path(__file__).resolve().parent
CODE = (PACKAGE, PACKAGE.parent / "opencl")  # all code that decides what a row holds
CODE_SUFFIXES = (".py", ".cl", ".sql")
# Dimensions of the results and places to run: none of them can change a row.
NOT_IN_STUDY: dict[str, Any] = {
    "study": {"name", "seeds", "instruments"},
    "folds": {"start"},
    "runtime": True,
}


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, shortest floats."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(text: str) -> str:
    """Return the id of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


def study_settings(config: Config) -> dict[str, Any]:
    """Return every setting that can change a row, as plain JSON values.

    Where an instrument's bars were read from is left out: the bars themselves are in `fold_id`,
    and the same file has another path on another machine.
    """
    settings = config.model_dump(mode="json", exclude=NOT_IN_STUDY)
    for table in (settings["instrument"], *settings["instruments"].values()):
        del table["source"]
    return settings


def study_id(config: Config, code: str | None = None) -> str:
    """Return the id of an experiment: its settings and the code that runs them.

    Args:
        config: the experiment; name, seeds, instruments and runtime do not count.
        code: a code hash; None = that of this checkout.
    """
    return digest(canonical([study_settings(config), code or code_hash()]))


@functools.cache
def code_hash(folders: Sequence[Path] = CODE) -> str:
    """Return the SHA-256 of all Python, OpenCL and SQL files below the folders.

    Names relative to the folder and contents count; line ends do not, so that checkouts of one
    commit agree on every system.
    """
    total = hashlib.sha256()
    for folder in folders:
        if not folder.is_dir():
            raise StoreError(f"{folder}: code folder is missing; install from a complete checkout")
        files = sorted(
            (p.relative_to(folder).as_posix(), p)
            for p in folder.rglob("*")
            if p.suffix in CODE_SUFFIXES and p.is_file()
        )
        for name, path in files:
            content = path.read_bytes().replace(b"\r\n", b"\n")
            total.update(f"{folder.name}/{name}\0{len(content)}\0".encode())
            total.update(content)
    return total.hexdigest()


def rows_hash(bars: Bars, stop: int) -> str:
    """Return the SHA-256 of the bar rows `[0, stop)`; later rows do not count.

    Raises:
        StoreError: fewer than `stop` bars.
    """
    if not 0 <= stop <= len(bars):
        raise StoreError(f"{bars.instrument}: rows [0, {stop}) asked of {len(bars)} bars")
    return bars.prefix(stop).content_hash


def fold_id(study: str, instrument: str, fold_key: str, rows: str) -> str:
    """Return the id of one fold: study, instrument, fold key and `rows_hash` up to test.stop."""
    return digest(canonical([study, instrument, fold_key, rows]))


def run_id() -> str:
    """Return a new name for one execution; names sort by start (UTC)."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class Provenance:
    """What ran: stored with every study and run."""

    code_hash: str
    package_version: str
    library_versions: dict[str, str]  # of Python and of every installed dependency
    host_os: str


def provenance() -> Provenance:
    """Return versions as installed here."""
    try:
        version = metadata.version("skillwalk")
        requirements = metadata.requires("skillwalk") or []
    except metadata.PackageNotFoundError:
        raise StoreError(
            "the package skillwalk is not installed; run `make venv` in the checkout"
        ) from None
    versions = {"python": platform.python_version()}
    for requirement in requirements:
        if "extra ==" in requirement:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a dependency of another platform
    return Provenance(code_hash(), version, versions, platform.platform())
