import gzip
from pathlib import Path

import pytest

from backtest.data.source import kind, stem
from backtest.errors import DataError


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"PAR1xxxxPAR1", "wrong magic bytes: this is a Parquet file"),
        ("a.csv", b"\x1f\x8bxxxx", "wrong magic bytes: this is gzip data"),
        ("a.csv", b"PK\x03\x04xxxx", "wrong magic bytes: this is a zip archive"),
        ("a.csv", b"[[1, 2]]", "wrong magic bytes: this is JSON"),
        ("a.csv", b"<!DOCTYPE html>", "wrong magic bytes: this is an HTML page"),
        ("a.csv", b"\xff\xfet\x00", "wrong magic bytes: this is UTF-16 text"),
        ("a.csv", b"ab\x00c", "wrong magic bytes: this is binary data"),
        ("a.csv.gz", b"time,open\n", "wrong magic bytes: this is no gzip data"),
        ("a.parquet", b"time,open\n", "wrong magic bytes: this is no Parquet file"),
        ("a.parquet", b"ARROW1\x00\x00", "wrong magic bytes: this is a Feather file"),
        ("a.parquet", b"PAR1 and then nothing", "truncated Parquet file"),
        ("a.feather", b"ARROW1", r"unknown format \.feather"),
        ("a.json.gz", b"\x1f\x8b", r"unknown format \.json"),
        ("bars", b"time", "unknown format without suffix"),
    ],
)
def test_names_and_first_bytes_must_agree(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        kind(path)
    assert name in str(error.value)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.csv: no such file"):
        kind(tmp_path / "no.csv")
    with pytest.raises(DataError, match="is a directory"):
        kind(tmp_path)


def test_good_files(tmp_path: Path) -> None:
    for name, content, expected in (
        ("a.CSV", b"time,open\n", "csv"),
        ("a.txt", b"\xef\xbb\xbftime\n", "csv"),
        ("a.csv.gz", gzip.compress(b"time\n"), "csv"),
        ("a.parquet", b"PAR1" + bytes(8) + b"PAR1", "parquet"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert kind(path) == expected


def test_stem_drops_format_and_compression() -> None:
    assert [stem(Path(p)) for p in ("d/ES.H4.csv.gz", "CL=F.csv", "X.parquet", "Y")] == [
        *("ES.H4", "CL=F", "X", "Y"),
    ]
