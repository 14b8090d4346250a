"""What kind of file a source is: its name and its first bytes must agree."""

from __future__ import annotations

from pathlib import Path

from backtest.errors import DataError

CSV_SUFFIXES = (".csv", ".txt", ".tsv")
PARQUET_SUFFIXES = (".parquet", ".pq")
CURE = "export the bars as CSV in UTF-8 or as Parquet"
# First bytes of what people hand over under a wrong name.
MAGIC = (
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "a Feather file"),
    (b"FEA1", "a Feather file of version 1"),
    (b"DBN", "a Databento DBN file"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"<!doc", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)


def stem(path: Path) -> str:
    """Return the file name without its suffixes of format and compression."""
    name = path.name
    for suffix in (".gz", *CSV_SUFFIXES, *PARQUET_SUFFIXES):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name


def kind(path: Path) -> str:
    """Return "csv" or "parquet" for a file whose name and first bytes say so.

    Raises:
        DataError: missing, a directory, empty, truncated, of a wrong or unknown kind.
    """
    if path.is_dir():
        raise DataError(f"{path}: is a directory; name one file in it")
    try:
        with path.open("rb") as file:
            head = file.read(64)
            size = file.seek(0, 2)
            file.seek(max(0, size - 4))
            tail = file.read(4)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; correct the instrument's source") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror})") from None
    if not head:
        raise DataError(f"{path}: the file is empty; export or copy it again")

    name = path.name.lower()
    zipped = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    found = contents(head)
    if suffix in PARQUET_SUFFIXES and not zipped:
        if found != "a Parquet file":
            raise DataError(
                f"{path}: wrong magic bytes: this is {found or 'no Parquet file'}; {CURE}"
            )
        if tail != b"PAR1" or size < 12:
            raise DataError(f"{path}: truncated Parquet file (no footer); copy it again")
        return "parquet"
    if suffix in CSV_SUFFIXES:
        if zipped and found != "gzip data":
            raise DataError(f"{path}: wrong magic bytes: this is {found or 'no gzip data'}; {CURE}")
        if not zipped and found:
            raise DataError(f"{path}: wrong magic bytes: this is {found}; {CURE}")
        return "csv"
    raise DataError(
        f"{path}: unknown format {suffix or 'without suffix'}; give CSV "
        f"({', '.join(CSV_SUFFIXES)}, also .gz) or Parquet ({', '.join(PARQUET_SUFFIXES)})"
    )


def contents(head: bytes) -> str | None:
    """Name what the first bytes give away; None for what may be plain text."""
    for magic, what in MAGIC:
        if head.lower().startswith(magic.lower()):
            return what
    return "binary data" if b"\x00" in head else None
