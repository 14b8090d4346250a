from pathlib import Path

import numpy as np
import pytest

from backtest.config import IssuePolicies
from backtest.data.issues import DataIssue, Findings, listed, read_issues, write_issues
from backtest.errors import DataError


def test_policies_decide() -> None:
    findings = Findings("X", "x.csv", IssuePolicies(gap="keep", stale="drop"))
    assert findings.decide("gap", [7, 5], "a gap") == "keep"
    assert findings.decide("stale", [9], "stale") == "drop"
    assert findings.decide("all_zero", [3], "zeros") == "error"
    findings.assume("assumed_bar", "daily")
    assert [(i.kind, i.first_row, i.rows, i.action) for i in findings.issues] == [
        ("gap", 5, 2, "kept"),
        ("stale", 9, 1, "dropped"),
        ("assumed_bar", 0, 0, "assumed"),
    ]
    with pytest.raises(
        DataError,
        match=r"^x\.csv: row 3: zeros; correct the file or set instruments\.X\.issues\.all_zero = "
        r'"drop" or "keep" \(kept\)\.$',
    ):
        findings.refuse()


def test_rows_that_cannot_be_kept_are_errors_even_so() -> None:
    findings = Findings("X", "x.csv", IssuePolicies(not_finite="keep"))
    assert findings.decide("no_time", [4], "no time", setting="not_finite", kept=None) == "error"
    assert findings.issues == []


def test_problems_come_together() -> None:
    findings = Findings("X", "x.csv")
    findings.refuse()  # nothing found, nothing raised
    findings.problem("row 1: one")
    findings.problem("row 2: two")
    with pytest.raises(DataError, match=r"^x\.csv: 2 problems: row 1: one\. row 2: two\.$"):
        findings.refuse()


def test_keys_quote_names_that_toml_would_not_take_bare() -> None:
    assert Findings("BTC-USD", "").key("bar") == "instruments.BTC-USD.bar"
    assert Findings("CL=F", "").key("bar") == "instruments.'CL=F'.bar"


def test_rows_are_listed_as_runs() -> None:
    assert listed(np.array([5])) == ""
    assert listed(np.array([9, 5, 6, 7])) == " (4 rows: 5-7, 9)"
    assert listed(np.arange(0, 20, 2)) == " (10 rows: 0, 2, 4, 6, 8, ...)"
    assert listed(np.arange(5000)) == " (5,000 rows: 0-4999)"


def test_issues_come_back_from_parquet(tmp_path: Path) -> None:
    issues = (DataIssue("X", "x.csv", "gap", 3, 2, "keep", "kept", "row 3: a gap"),)
    write_issues(issues, tmp_path / "i.parquet")
    assert read_issues(tmp_path / "i.parquet") == issues
    write_issues([], tmp_path / "none.parquet")
    assert read_issues(tmp_path / "none.parquet") == ()
    with pytest.raises(DataError, match="cannot be read"):
        read_issues(tmp_path / "missing.parquet")
