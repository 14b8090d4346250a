"""`audit`: the order of scripted policies, its exit code, and its rows in the store."""

import json

import pytest
from typer.testing import CliRunner

from backtest.lake import Lake
from backtest.queries import query
from pipelines import cli

SMALL = ("--set", "audit.synthetic_episodes=96", "--set", "audit.user_episodes=32")
SHORT = ("--set", "audit.horizons=[100]")


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def last_line(done):
    return done.stdout.splitlines()[-1]


def test_the_shipped_reward_passes_and_lands_in_the_store(tmp_path):
    lake, out = tmp_path / "lake", tmp_path / "audit.json"
    done = invoke(
        "audit", *SHORT, "--set", "audit.synthetic_episodes=1200", "--lake", lake, "--json", out
    )
    assert done.exit_code == 0, done.output
    assert last_line(done).startswith("audit calibrated: order holds (Gaussian ok, SP500 ok; ")
    assert "reward.formula = calibrated, reward.loss_aversion = 1.25" in done.stdout
    assert "composite vol: 69% of the bars at the floor 0.5" in done.stdout
    rows = query(
        Lake(lake),
        "SELECT source, count(*) AS n, bool_and(order_ok) AS ok FROM reward_audit "
        "GROUP BY source ORDER BY source",
    ).rows
    assert rows == [
        {"source": "bars", "n": 9, "ok": True},
        {"source": "synthetic", "n": 9, "ok": True},
    ]
    value = json.loads(out.read_text())
    assert [a["source"] for a in value["audits"]] == ["synthetic", "bars"]
    study = query(Lake(lake), "SELECT study_id FROM study").rows
    assert study == [{"study_id": value["study_id"]}]


def test_the_literal_reward_fails_with_1(tmp_path):
    done = invoke(
        *("audit", "--synthetic", *SMALL, *SHORT, "--lake", tmp_path / "lake"),
        *("--set", "reward.formula=composite"),
    )
    assert done.exit_code == 1
    assert last_line(done).startswith("audit composite: order FAILS (Gaussian ")
    assert "reward.loss_aversion = 1.5" in done.stdout
    assert "FAIL T=100: " in done.stdout
    assert not (tmp_path / "lake").exists()  # --synthetic stores nothing


def test_another_notional_is_shown_and_not_stored(tmp_path):
    lake = ("--lake", tmp_path / "lake")
    done = invoke("audit", *SMALL, *SHORT, "--notional", "0.3", *lake)
    assert "calibrated on SP500 bars, notional 0.30 x capital" in done.stdout
    assert not (tmp_path / "lake").exists()
    done = invoke("audit", *SMALL, *SHORT, "--notional", "0.001", *lake)
    assert done.exit_code == 2
    assert "lot_size" in done.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [("folds.train=30", "[folds]"), ("audit.horizons=[]", "[audit.horizons]")],
)
def test_what_cannot_be_audited_exits_with_2(tmp_path, override, message):
    done = invoke("audit", *SMALL, "--set", override, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "lake").exists()
