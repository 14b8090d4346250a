"""The lake: where every output lies, and writing files so that a crash leaves none half-written.

Files are the interface between assets. A file appears under its name complete, or not at all.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from backtest.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

# `segment` escapes "@", so no instrument or fold key can take this name.
PARTS = "@parts"


@dataclass(frozen=True)
class Lake:
    """All paths below one root folder; nothing is created before the first write."""

    root: Path

    @property
    def store(self) -> Path:
        """The published DuckDB file; replaced as a whole, never written in place."""
        return self.root / "backtest.duckdb"

    @property
    def results(self) -> Path:
        """The truth behind the store: Parquet files and manifests."""
        return self.root / "results"

    @property
    def dagster_home(self) -> Path:
        """DAGSTER_HOME of `skillwalk run`, `make demo` and the UI alike."""
        return self.root / ".dagster"

    def bars(self, instrument: str) -> Path:
        """Cleaned bars of one instrument, Parquet."""
        return self.root / "bars" / f"{segment(instrument)}.parquet"

    def issues(self, instrument: str) -> Path:
        """What ingestion found in the source of those bars, Parquet."""
        return self.bars(instrument).with_suffix(".issues.parquet")

    def features(self, study_id: str, instrument: str, window: str) -> Path:
        """Feature rows of one window, Parquet; `window` is its partition key."""
        folder = self.root / "features" / segment(study_id) / segment(instrument)
        return folder / f"{segment(window)}.parquet"

    def experience(self, study_id: str, instrument: str, fold_key: str, fold_id: str) -> Path:
        """Folder of the first, exploring collection of one fold."""
        return self._fold("experience", study_id, instrument, fold_key, fold_id)

    def policies(self, study_id: str, instrument: str, fold_key: str, fold_id: str) -> Path:
        """Folder of checkpoints, curves and scalers of one fold."""
        return self._fold("policies", study_id, instrument, fold_key, fold_id)

    def skills(self, study_id: str, instrument: str, fold_key: str, fold_id: str) -> Path:
        """Folder of skill banks, of policies trained on, and of what validation chose."""
        return self._fold("skills", study_id, instrument, fold_key, fold_id)

    def fold_results(self, study_id: str, instrument: str, fold_key: str, fold_id: str) -> Path:
        """Folder of one fold's result: `manifest.json` and the Parquet files that it names."""
        return self._fold("results", study_id, instrument, fold_key, fold_id)

    def part(self, name: str, study_id: str = "", instrument: str = "") -> Path:
        """Folder of rows that belong to a study, an instrument or both, not to one fold."""
        folder = self.results / segment(study_id) if study_id else self.results
        owner = segment(instrument) if instrument else "@study"
        return folder / PARTS / owner / segment(name)

    def reports(self, study_id: str) -> Path:
        """Folder of one study's report."""
        return self.root / "reports" / segment(study_id)

    def _fold(self, kind: str, study: str, instrument: str, key: str, fold_id: str) -> Path:
        folder = self.root / kind / segment(study) / segment(instrument)
        return folder / segment(key) / segment(fold_id)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Hold the lake's exclusive lock; it spans threads, processes, command line and UI."""
        self.root.mkdir(parents=True, exist_ok=True)
        with locked(self.root / ".publish.lock"):
            yield


def segment(name: str) -> str:
    """Return `name` as one path segment; only letters, digits and `_.-~` stay as they are.

    Raises:
        StoreError: a name that is empty or made of dots alone.
    """
    if not name.strip("."):
        raise StoreError(f"{name!r} cannot name a folder of the lake; use letters or digits")
    return quote(name, safe="")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for, then hold an exclusive lock; the kernel frees it when its process dies."""
    import fcntl  # POSIX only; here so that reading a lake works without it

    with path.open("a", encoding="utf-8") as lock:
        # flock, not lockf: it excludes two threads of one process as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder that becomes `path` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace(temporary: Path, path: Path) -> None:
    """Rename a finished file over `path`; content and name survive a power cut."""
    flush(temporary)
    os.replace(temporary, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet; equal tables give equal files."""
    import pyarrow.parquet as pq

    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns.

    Raises:
        StoreError: the file is missing or is no complete Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).read(columns=columns)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; materialise the asset that writes it") from None
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path}: no complete Parquet file ({error}); write it again") from None


def write_json(path: Path, value: Any) -> None:
    """Write JSON, readable and in a stable order of keys.

    Raises:
        StoreError: a NaN or an infinity, which JSON cannot hold.
    """
    try:
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise StoreError(f"{path}: {error}; use null for an undefined number") from None
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        StoreError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; materialise the asset that writes it") from None
    except (ValueError, OSError) as error:
        raise StoreError(f"{path}: not valid JSON ({error}); write it again") from None
