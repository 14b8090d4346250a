"""Manifests: what a folder of result files holds, written last, checked before it is believed.

A folder without a manifest does not exist for any reader; one whose files differ from it is
reported and left out.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backtest.errors import StoreError
from backtest.lake import PARTS, Lake, read_json, write_json
from backtest.schema import declared

NAME = "manifest.json"


@dataclass(frozen=True)
class FoldHeader:
    """Whose rows a fold result holds; `run_id` is the execution that wrote them."""

    study_id: str
    instrument: str
    fold_key: str
    fold_id: str
    run_id: str

    def folder(self, lake: Lake) -> Path:
        """Where the result lies."""
        return lake.fold_results(self.study_id, self.instrument, self.fold_key, self.fold_id)

    def fixed(self, table: str) -> dict[str, Any]:
        """Return the columns of a table whose value this header knows."""
        known: dict[str, Any] = asdict(self)
        if table == "fold":
            known["superseded"] = False  # publication decides
        elif table == "metric":
            known |= {"scope": "fold", "scope_id": self.fold_id}
        return {c: v for c, v in known.items() if c in declared()[table].schema.names}


@dataclass(frozen=True)
class PartHeader:
    """Whose rows a part holds: a study, an instrument's data, or an instrument of a study."""

    name: str  # unique within its owner, such as study, plan, audit
    run_id: str
    study_id: str = ""
    instrument: str = ""

    def folder(self, lake: Lake) -> Path:
        """Where the part lies."""
        return lake.part(self.name, self.study_id, self.instrument)

    def fixed(self, table: str) -> dict[str, Any]:
        """Return the columns of a table whose value this header knows."""
        known: dict[str, Any] = {
            k: v for k, v in asdict(self).items() if v and k in ("study_id", "instrument", "run_id")
        }
        if table == "fold":
            known["superseded"] = False
        elif table == "metric" and self.instrument:
            known |= {"scope": "instrument", "scope_id": f"{self.study_id}/{self.instrument}"}
        elif table == "metric":
            known |= {"scope": "study", "scope_id": self.study_id}
        return {c: v for c, v in known.items() if c in declared()[table].schema.names}


@dataclass(frozen=True)
class File:
    """One Parquet file as it was when its manifest was written."""

    path: str  # relative to the manifest's folder
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One complete set of files."""

    folder: Path
    header: FoldHeader | PartHeader
    status: str  # of the fold; "" for a part
    created: str  # UTC to the nanosecond; texts sort by time
    files: Mapping[str, File]  # by table

    def path(self, table: str) -> Path:
        """Return the Parquet file of a table.

        Raises:
            StoreError: this result has no such table.
        """
        if table not in self.files:
            raise StoreError(f"{self.folder}: holds no table {table}, only {sorted(self.files)}")
        return self.folder / self.files[table].path


def now() -> str:
    """Return the time as text that sorts, UTC to the nanosecond."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def write_manifest(manifest: Manifest) -> None:
    """Write the manifest; from here on its files exist for readers."""
    kind = "fold" if isinstance(manifest.header, FoldHeader) else "part"
    value = {
        "kind": kind,
        "header": asdict(manifest.header),
        "status": manifest.status,
        "created": manifest.created,
        "files": {table: asdict(file) for table, file in manifest.files.items()},
    }
    write_json(manifest.folder / NAME, value)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        StoreError: it is missing, is not JSON, or lacks a key.
    """
    value = read_json(folder / NAME)
    try:
        kind = {"fold": FoldHeader, "part": PartHeader}[value["kind"]]
        return Manifest(
            folder=folder,
            header=kind(**value["header"]),
            status=value["status"],
            created=value["created"],
            files={table: File(**file) for table, file in value["files"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{folder / NAME}: not a manifest of this version ({error!r})") from None


def scan(lake: Lake) -> tuple[list[Manifest], list[str]]:
    """Return every manifest of the lake in the order of folders, and what is wrong elsewhere."""
    manifests, problems = [], []
    for folder in result_folders(lake.results):
        if not (folder / NAME).exists():
            problems.append(f"{folder}: no manifest: unfinished, or being written just now")
            continue
        try:
            manifest = read_manifest(folder)
            if manifest.header.folder(lake) != folder:
                raise StoreError(f"{folder}: its manifest belongs to another folder; move it back")
            manifests.append(manifest)
        except StoreError as error:
            problems.append(str(error))
    return manifests, problems


def result_folders(results: Path) -> Iterable[Path]:
    """Return the folders that hold, or should hold, a manifest."""
    # <study>/<instrument>/<fold key>/<fold id>, <study>/@parts/<owner>/<name>
    folders = [p for p in results.glob("*/*/*/*") if p.relative_to(results).parts[0] != PARTS]
    folders += results.glob(f"{PARTS}/*/*")  # <instrument>/<name>
    return sorted(p for p in folders if p.is_dir())


def defect(manifest: Manifest, *, contents: bool = True) -> str | None:
    """Return what is wrong with the files of a manifest, or None.

    Args:
        manifest: the manifest.
        contents: also compare checksums and columns; False looks at sizes alone.
    """
    for table, file in manifest.files.items():
        path = manifest.folder / file.path
        if table not in declared():
            return f"{path}: the schema has no table {table}; written by another version"
        if not path.is_file():
            return f"{path}: file is missing; materialise its fold again"
        if path.stat().st_size != file.bytes or (contents and checksum(path) != file.sha256):
            return f"{path}: file is damaged; materialise its fold again"
        if contents and (difference := column_difference(path, table)):
            return f"{path}: {difference}; written by another version"
    return None


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def column_difference(path: Path, table: str) -> str | None:
    """Return why a file cannot become rows of a table; missing columns become NULL if allowed."""
    import pyarrow.parquet as pq

    written = pq.read_schema(path)
    schema = declared()[table].schema
    for field in schema:
        if field.name in written.names and written.field(field.name).type != field.type:
            return f"column {field.name} is {written.field(field.name).type}, not {field.type}"
        if field.name not in written.names and not field.nullable:
            return f"column {field.name} is missing"
    unknown = sorted(set(written.names) - set(schema.names))
    return f"columns {unknown} are unknown" if unknown else None
