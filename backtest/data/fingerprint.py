"""What was handed over: path, size, hash and rows of a source, before anything is parsed."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from backtest import identity
from backtest.config import Instrument
from backtest.data.example import example
from backtest.data.source import kind
from backtest.errors import DataError

CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class Fingerprint:
    """A source as it is now.

    Attributes:
        source: as the configuration names it.
        path: the file; None for the generator.
        kind: "csv", "parquet" or "synthetic".
        rows: lines of a text file (header counted), rows of a table or of the generator.
        bytes: size of the file; 0 for the generator.
        sha256: of the file; of the settings for the generator.
    """

    source: str
    path: Path | None
    kind: str
    rows: int
    bytes: int
    sha256: str


def fingerprint(instrument: Instrument) -> Fingerprint:
    """Return what an instrument's source holds now.

    Raises:
        ConfigError: an example that is not shipped.
        DataError: no file, or none of a known kind.
    """
    source = instrument.source
    if source == "synthetic":
        settings = instrument.synthetic
        text = identity.canonical(settings.model_dump(mode="json"))
        return Fingerprint(
            source, None, "synthetic", settings.bars, 0, hashlib.sha256(text.encode()).hexdigest()
        )
    path = Path(source).expanduser()
    if source.startswith("example:"):
        path = example(source.removeprefix("example:"))
    found = kind(path)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    rows = lines(path) if found == "csv" else table_rows(path)
    return Fingerprint(source, path, found, rows, path.stat().st_size, sha256)


def lines(path: Path) -> int:
    """Return the number of lines of a text file, plain or gzip; a last one may lack its end."""
    count, last = 0, b"\n"
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            while chunk := file.read(CHUNK):
                count += chunk.count(b"\n")
                last = chunk
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}); copy the file again") from None
    return count + int(not last.endswith(b"\n"))


def table_rows(path: Path) -> int:
    """Return the number of rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged Parquet file ({error}); copy it again") from None
