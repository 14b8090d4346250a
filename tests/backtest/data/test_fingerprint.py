"""What was handed over: sizes, hashes and rows of every kind of source."""

import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtest.data.fingerprint import fingerprint, lines
from backtest.errors import ConfigError, DataError
from backtest.sections import Instrument, Synthetic


def test_a_text_file(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_text("time,close\n1,2\n3,4\n")
    found = fingerprint(Instrument(source=str(path)))
    assert (found.kind, found.rows, found.bytes) == ("csv", 3, path.stat().st_size)
    assert found.path == path
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2)]
)
def test_lines_are_counted_with_and_without_a_last_line_end(tmp_path, text, count):
    path = tmp_path / "bars.csv"
    path.write_text(text)
    assert lines(path) == count
    zipped = tmp_path / "bars.csv.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert lines(zipped) == count


def test_a_truncated_gzip_file_is_refused(tmp_path):
    path = tmp_path / "bars.csv.gz"
    path.write_bytes(gzip.compress(b"time,close\n" * 1000)[:-20])
    with pytest.raises(DataError, match="copy the file again"):
        lines(path)


def test_a_table(tmp_path):
    path = tmp_path / "bars.parquet"
    pq.write_table(pa.table({"time": [1, 2, 3, 4]}), path)
    found = fingerprint(Instrument(source=str(path)))
    assert (found.kind, found.rows) == ("parquet", 4)


def test_a_damaged_table_is_refused(tmp_path):
    path = tmp_path / "bars.parquet"
    path.write_bytes(b"PAR1" + b"x" * 30 + b"PAR1")
    with pytest.raises(DataError, match="damaged Parquet file"):
        fingerprint(Instrument(source=str(path)))


def test_the_shipped_examples():
    found = fingerprint(Instrument(source="example:sp500"))
    assert (found.kind, found.rows) == ("csv", 5032)  # a header and 5,031 bars
    with pytest.raises(ConfigError, match="example:dax"):
        fingerprint(Instrument(source="example:dax"))


def test_the_generator_is_its_settings():
    one = fingerprint(Instrument(source="synthetic", synthetic=Synthetic(bars=100, seed=1)))
    other = fingerprint(Instrument(source="synthetic", synthetic=Synthetic(bars=100, seed=2)))
    assert (one.kind, one.rows, one.bytes, one.path) == ("synthetic", 100, 0, None)
    assert one.sha256 != other.sha256
    assert one == fingerprint(Instrument(source="synthetic", synthetic=Synthetic(bars=100, seed=1)))
