import gzip
from pathlib import Path

import numpy as np
import pytest

from backtest.config import CsvFormat
from backtest.data import csv_reader
from backtest.data.csv_reader import open_csv
from backtest.data.issues import Findings
from backtest.errors import DataError
from tests.backtest.data.conftest import HEADER, ROWS, Ingest, Write


def texts(path: Path, places: list[int], layout: CsvFormat | None = None) -> list[list[str]]:
    source = open_csv(path, layout or CsvFormat(), Findings("X", str(path)))
    blocks = list(source.blocks(places))
    return [[v for block in blocks for v in block[p].to_pylist()] for p in places]


def test_columns_stay_text(write: Write) -> None:
    assert texts(write(), [0, 4]) == [
        ["2024-01-01", "2024-01-02", "2024-01-03"],
        ["11", "12", "13"],
    ]


def test_byte_order_mark_crlf_gzip_and_quotes(tmp_path: Path) -> None:
    text = "\ufeff" + HEADER + "\r\n" + "\r\n".join(ROWS).replace("100", '"100"') + "\r\n"
    plain, zipped = tmp_path / "X.csv", tmp_path / "X.csv.gz"
    plain.write_bytes(text.encode())
    zipped.write_bytes(gzip.compress(text.encode()))
    for path in (plain, zipped):
        source = open_csv(path, CsvFormat(), Findings("X", ""))
        assert source.headers == HEADER.split(",")
        assert texts(path, [5]) == [["100", "200", "300"]]


def test_rows_are_counted_by_lines_of_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 100)  # several blocks
    rows = [ROWS[0], "cut,1,2", ROWS[1], "", ROWS[2], "cut,1,2,3,4,5,6"] * 10
    source = open_csv(write(rows), CsvFormat(), Findings("X", ""))
    count = sum(len(block[0]) for block in source.blocks([0]))
    assert count == 40  # blank lines are entries, ragged ones are not
    assert [damage.row for damage in source.ragged[:3]] == [3, 7, 9]
    assert source.rows(np.arange(6)).tolist() == [2, 4, 5, 6, 8, 10]
    assert source.ragged[0].what == "3 columns instead of 6 ('cut,1,2')"


def test_a_stream_can_be_started_again(write: Write) -> None:
    source = open_csv(write([*ROWS, "cut"]), CsvFormat(), Findings("X", ""))
    for _ in range(2):
        assert sum(len(block[0]) for block in source.blocks([0])) == 3
        assert len(source.ragged) == 1


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (None, ROWS, r"row 1 holds data, not a header; set instruments\.X\.csv\.header = false"),
        ("a;b;c;d;e", ["1;2;3;4;5"], r'one column only .*csv\.delimiter = ";"'),
        ("a\tb\tc\td\te", ["1\t2\t3\t4\t5"], r'csv\.delimiter = "\\t"'),
        ("time", ["1"], "one column only .*check the file"),
        ("", ["", ""], "blank lines only"),
    ],
)
def test_first_lines_that_do_not_fit(
    write: Write, header: str | None, rows: list[str], message: str
) -> None:
    path = write(rows, header=header)
    with pytest.raises(DataError, match=r"X\.csv: .*" + message):
        open_csv(path, CsvFormat(), Findings("X", ""))


def test_leading_blank_lines_are_counted(write: Write) -> None:
    source = open_csv(write(ROWS, header="\n\n" + HEADER), CsvFormat(), Findings("X", ""))
    assert sum(len(block[0]) for block in source.blocks([0])) == 3
    assert source.rows(np.arange(3)).tolist() == [4, 5, 6]


def test_damaged_files(tmp_path: Path, write: Write, take_in: Ingest) -> None:
    many = "\n".join([HEADER, *ROWS * 30_000]).encode()
    cut = tmp_path / "cut.csv.gz"
    for size in (20, 2000):
        cut.write_bytes(gzip.compress(many)[:size])
        with pytest.raises(DataError, match=r"cut\.csv\.gz: truncated or damaged"):
            take_in(cut)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(f"{HEADER}\n2024-01-01,1,1,1,1,1é\n".encode("latin-1"))
    with pytest.raises(DataError, match="not readable as text"):
        take_in(latin)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(HEADER.encode() + b"\n" + b"x" * 100 + b"\x00")
    with pytest.raises(DataError, match="binary data, not text"):
        take_in(binary)
    with pytest.raises(DataError, match="holds no rows"):
        take_in(write([]))


def test_a_file_of_ragged_rows_is_given_up(
    write: Write, take_in: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "MAX_RAGGED", 3)
    with pytest.raises(DataError, match=r"more than 3 rows do not have 6 columns.*row 2"):
        take_in(write(["1,2"] * 9))
