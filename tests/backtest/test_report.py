"""The stitched record and the pages of a study that was evaluated for real."""

import numpy as np
import pytest

from backtest.errors import StoreError
from backtest.lake import Lake
from backtest.queries import query
from backtest.record import fold_statuses, stitched
from backtest.report import html, write_report
from backtest.summary import Summary
from tests.study import FOLDS, PARTIAL, copied


def test_lines_are_the_stitched_equity_policies_first(study):
    lines = stitched(study.lake, study.study_id, "ONE")
    labels = [line.label for line in lines]
    assert labels[:2] == ["policy seed 0", "policy seed 1"]
    assert labels[2:] == sorted(labels[2:]) and "buy and hold" in labels
    assert [line.learned for line in lines] == [True] * 2 + [False] * (len(lines) - 2)
    for line in lines:
        assert len(line.time) == len(line.equity) > 0
        assert (np.diff(line.time) > np.timedelta64(0)).all()
    first = lines[0]
    rows = query(
        study.lake,
        "SELECT equity FROM oos_equity WHERE instrument = 'ONE' AND variant = 'none' AND seed = 0 "
        "ORDER BY bar",
    ).rows
    assert first.equity.tolist() == [row["equity"] for row in rows]


def test_every_fold_is_listed_with_its_status(study):
    own = [row for row in fold_statuses(study.lake, study.study_id) if row["instrument"] == "ONE"]
    found = {row["fold_key"]: row["status"] for row in own}
    assert found == {
        **dict.fromkeys(FOLDS[:2], "complete"),
        FOLDS[2]: "missing",
        PARTIAL: "partial",
    }


def test_a_page_an_instrument_and_the_library_beside_them(study, tmp_path):
    own = copied(study, tmp_path / "lake")
    pages = write_report(own.lake, own.study_id)
    assert [page.name for page in pages] == ["ONE.html", "TWO.html"]
    folder = own.lake.reports(own.study_id)
    assert sorted(p.name for p in folder.iterdir()) == ["ONE.html", "TWO.html", "plotly.min.js"]
    text = pages[0].read_text(encoding="utf-8")
    for expected in ("ONE out of sample", "buy and hold", "policy seed 1", "missing", PARTIAL):
        assert expected in text
    assert "https://" not in text and 'src="plotly.min.js"' in text


def test_a_study_without_a_complete_fold_has_a_page_too():
    empty = Summary("abc", "<X>", {"failed": 1}, None, None, 0, 0, None, (), ())
    row = {"fold_key": "k", "status": "failed", "n_bars": 3, "fold_id": "f", "reason": "a < b"}
    page = html(empty, [row], [])
    assert "No complete fold yet." in page and "a &lt; b" in page and "<X>" not in page


def test_a_lake_without_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no store yet"):
        stitched(Lake(tmp_path), "abc", "ONE")
