"""`ingest`, `folds` and `simulate`: what comes in, what is refused, and that nothing is left."""

import json
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipelines import cli

GOOD = "when;o;h;l;c\n2020-01-02 10:00;1,0;2,0;0,5;1,5\n2020-01-02 11:00;1,5;2,5;1,0;2,0\n"
FORMAT = (
    *("--delimiter", ";", "--decimal", ",", "--timezone", "America/New_York", "--stamp", "open"),
    *("--columns", "time=when,open=o,high=h,low=l,close=c", "--bar", "1h"),
)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "in" / "EU.csv"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


@pytest.fixture(scope="module")
def example_lake(tmp_path_factory):
    """A lake with the S&P 500 bars of the example."""
    lake = tmp_path_factory.mktemp("example") / "lake"
    assert invoke("ingest", "example:sp500", "--lake", lake).exit_code == 0
    return lake


def test_ingest_reads_a_file_as_declared(csv, tmp_path):
    out = tmp_path / "figures.json"
    lake = tmp_path / "lake"
    done = invoke("ingest", csv, *FORMAT, "--lake", lake, "--json", out)
    assert done.exit_code == 0, done.output
    assert "EU: 2 bars of 1h" in done.stdout
    assert "2020-01-02T16:00:00Z to 2020-01-02T17:00:00Z" in done.stdout  # closes, UTC
    table = pq.read_table(lake / "bars" / "EU.parquet")
    assert table["close"].to_pylist() == [1.5, 2.0]
    (figures,) = json.loads(out.read_text())["instruments"]
    assert (figures["instrument"], figures["bars"], figures["spacing"]) == ("EU", 2, "1h")
    assert figures["volume_known"] is False
    # the printed table reads the file the same way
    toml = tmp_path / "study.toml"
    hint = done.stdout[done.stdout.index("  [instruments.EU]") :].split("figures written")[0]
    toml.write_text(f'study.instruments = ["EU"]\n{hint}\nmax_position = 10.0\n')
    assert tomllib.loads(toml.read_text())["instruments"]["EU"]["csv"]["columns"]["time"] == "when"
    again = invoke("ingest", "--config", toml, "--lake", tmp_path / "other")
    assert again.exit_code == 0, again.output
    second = pq.read_table(tmp_path / "other" / "bars" / "EU.parquet")
    assert second.equals(table)


def test_a_source_in_toml_begins_at_its_folder(csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toml = csv.parent / "study.toml"
    toml.write_text(
        '[study]\ninstruments = ["EU"]\n[instruments.EU]\nsource = "EU.csv"\nbar = "1h"\n'
        "max_position = 10.0\n"
        'csv = {delimiter = ";", decimal = ",", columns = {time = "when", open = "o", high = "h", '
        'low = "l", close = "c"}}\n'
    )
    assert invoke("ingest", "--config", "in/study.toml").exit_code == 0
    assert (tmp_path / "lake" / "bars" / "EU.parquet").is_file()
    # in --set it begins at the working folder
    override = ("--set", "instruments.EU.source=in/EU.csv")
    assert invoke("ingest", "--config", "in/study.toml", *override).exit_code == 0


def test_ingest_takes_one_configured_instrument(tmp_path):
    lake = tmp_path / "lake"
    done = invoke("ingest", "--profile", "smoketest", "--name", "SP500", "--lake", lake)
    assert done.exit_code == 0
    assert "SP500: 5,031 bars of 1d" in done.stdout
    assert "no issues" in done.stdout
    done = invoke("ingest", "--profile", "smoketest", "--name", "NQ", "--lake", lake)
    assert done.exit_code == 2
    assert "--name NQ: the experiment has SP500" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "2020-01-02 12:00;1,5;2,5;;2,0\n", "row 4: low is empty"),
        (GOOD + "2020-01-02 11:00;1,5;2,5;1,0;2,1\n", "row 4"),
        (GOOD.replace("when;", "zeit;"), "csv.columns.time = 'when'"),
        ("", "the file is empty"),
        (None, "no such file"),
    ],
)
def test_bad_files_exit_with_2_and_write_nothing(tmp_path, text, message):
    path, lake = tmp_path / "EU.csv", tmp_path / "lake"
    if text is not None:
        path.write_text(text)
    done = invoke("ingest", path, *FORMAT, "--lake", lake)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not lake.exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--delimiter", ";;"), "[csv.delimiter]"),
        (("--decimal", ";"), "[csv.decimal]"),
        (("--stamp", "middle"), "[csv.stamp]"),
        (("--columns", "time"), "'time' is not OURS=THEIRS"),
        (("--date-format", "%Q"), "%Q is not supported"),
        (("--timezone", "Mars/Olympus"), "Mars/Olympus"),
        (("--calendar", "MARS"), "MARS"),
        (("--bar", "1 parsec"), "1 parsec"),
    ],
)
def test_bad_options_name_themselves(csv, tmp_path, option, message):
    done = invoke("ingest", csv, *FORMAT, *option, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "lake").exists()


def test_folds_of_a_profile_need_no_lake(tmp_path):
    out = tmp_path / "folds.json"
    lake = tmp_path / "lake"
    done = invoke("folds", "--profile", "smoketest", "--lake", lake, "--json", out)
    assert done.exit_code == 0
    assert "SP500: 8 folds of 5,031 bars" in done.stdout
    assert "purge 13 bars" in done.stdout
    assert not lake.exists()
    (figures,) = json.loads(out.read_text())["instruments"]
    first = figures["folds"][0]
    assert (first["key"], first["status"]) == ("2011-01-01", "complete")
    assert first["train"]["stop"] + 13 == first["validation"]["start"]
    assert first["validation"]["stop"] + 13 == first["test"]["start"]
    assert (first["test"]["first"], first["test"]["last"]) == ("2011-01-03", "2011-12-30")


def test_folds_in_bars_and_sessions(example_lake):
    for unit in ("bars", "sessions"):
        counts = ("--train", 1000, "--validation", 200, "--test", 500)
        done = invoke("folds", "--unit", unit, *counts, "--lake", example_lake)
        assert done.exit_code == 0, done.output
        # daily bars: a session is a bar; 605 + 1000 + 200 = 1805 is the first test bar
        first = next(line for line in done.stdout.splitlines() if "complete" in line)
        assert "[605,1592)[1605,1792)[1805,2305)" in first.replace(" ", "")
    assert invoke("folds", "--unit", "bars", "--lake", example_lake).exit_code == 2
    assert invoke("folds", "--train", "9", "--lake", example_lake).exit_code == 2


def test_impossible_plans_say_what_would_fit(example_lake):
    done = invoke("folds", "--set", "folds.train=30", "--lake", example_lake)
    assert done.exit_code == 2
    assert "error: [folds] " in done.stderr
    assert "the 5031 bars hold 17" in done.stderr
    done = invoke("folds", "--set", "folds.cron=every day", "--lake", example_lake)
    assert done.exit_code == 2
    assert "[folds] cron" in done.stderr


def test_simulate_trades_targets_over_ingested_bars(example_lake, tmp_path):
    targets, out, figures = (tmp_path / name for name in ("t.csv", "e.parquet", "f.json"))
    targets.write_text("bar,hold,flat\n700,15,0\n1000,15,0\n")
    done = invoke(
        *("simulate", targets, "--lake", example_lake, "--out", out, "--json", figures),
        *("--set", "evaluation.bootstrap=50"),
    )
    assert done.exit_code == 0, done.output
    assert "SP500: bars 701 to 1001, 301 decisions" in done.stdout
    table = pq.read_table(out)
    assert table.num_rows == 602
    bars = pq.read_table(example_lake / "bars" / "SP500.parquet")
    close, open_ = (bars[name].to_numpy() for name in ("close", "open"))
    # 15 units of 5 currency a point; spread and slippage 0.25 points, fee 0.5, 1e-5 of the price
    cost = 15 * (0.5 + 5 * 0.25 + 5 * open_[701] * 1e-5)
    expected = 100_000 + 75 * (close[1001] - open_[701]) - cost
    equity = table["equity"].to_numpy()
    assert equity[300] == pytest.approx(expected, abs=1e-6)
    assert np.all(equity[301:] == 100_000)
    hold, flat = json.loads(figures.read_text())["strategies"]
    assert hold["final_equity"] == pytest.approx(expected)
    assert hold["metrics"]["n_open"] == 1
    assert flat["metrics"]["sharpe"] is None


def test_simulate_scores_thousands_of_strategies(example_lake, tmp_path):
    targets, out, figures = (tmp_path / name for name in ("t.parquet", "s.parquet", "f.json"))
    bars, count = np.arange(700, 1000), 2000
    sides = np.random.default_rng(0).integers(-1, 2, (len(bars), count)).astype(np.int8)
    sides[:, 0] = 1
    names = [f"s{i}" for i in range(count)]
    pq.write_table(pa.table({"bar": bars, **dict(zip(names, sides.T, strict=True))}), targets)
    given = ("simulate", targets, "--lake", example_lake, "--set", "evaluation.bootstrap=50")
    done = invoke(*given, "--out", out, "--json", figures)
    assert done.exit_code == 0, done.output
    assert "the 20 best of 2,000 strategies" in done.stdout and "figures written to" in done.stdout
    table = pq.read_table(out)
    assert table["strategy"].to_pylist() == names
    sharpe = table["sharpe"].to_numpy()
    best = names[int(np.nanargmax(sharpe))]
    second = names[np.argsort(-sharpe)[1]]
    assert done.stdout.index(f"\n{best} ") < done.stdout.index(f"\n{second} ")
    written = json.loads(figures.read_text())["strategies"]
    assert [row["name"] for row in written] == names
    # the account of one of them, in float64
    done = invoke(*given, "--strategy", "s0", "--strategy", best, "--json", figures)
    assert done.exit_code == 0, done.output
    first, other = json.loads(figures.read_text())["strategies"]
    assert (first["name"], other["name"]) == ("s0", best)
    assert other["metrics"]["sharpe"] == pytest.approx(np.nanmax(sharpe), rel=1e-3)
    assert first["final_equity"] == pytest.approx(written[0]["final_equity"], rel=1e-6)
    done = invoke(*given, "--strategy", "s2000")
    assert done.exit_code == 2 and "holds no strategy s2000" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bar,a\n700,16\n", "row 2: a = 16 units exceeds max_position = 15"),
        ("bar,a\n700,1\n701,\n", "row 3: a is empty"),
        ("bar,a\n9999,1\n", "bar 9999 is not among the 5,031 bars"),
    ],
)
def test_simulate_refuses_rows(example_lake, tmp_path, text, message):
    targets, out = tmp_path / "t.csv", tmp_path / "e.parquet"
    targets.write_text(text)
    done = invoke("simulate", targets, "--lake", example_lake, "--out", out)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not out.exists()


def test_simulate_needs_ingested_bars(tmp_path):
    targets = tmp_path / "t.csv"
    targets.write_text("bar,a\n700,1\n")
    done = invoke("simulate", targets, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert "no bars of SP500; run `skillwalk ingest`" in done.stderr
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.batches=3", "[learner.batches] unknown key"),
        ("learner.batch=many", "[learner.batch]"),
        ("folds.warmup=10", "[folds.warmup]"),
        ("nonsense", "expected section.key=value"),
    ],
)
@pytest.mark.parametrize("command", ["folds", "audit", "run"])
def test_configuration_mistakes_name_the_key(tmp_path, command, override, message):
    done = invoke(command, "--set", override, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_configuration_files_are_looked_for(tmp_path):
    lake = ("--lake", tmp_path / "lake")
    missing = tmp_path / "none.toml"
    assert f"{missing}: no such file" in invoke("folds", missing, *lake).stderr
    assert "no such profile" in invoke("folds", "--profile", "fast", *lake).stderr
    both = invoke("folds", missing, "--profile", "smoketest", *lake)
    assert "give one of the two" in both.stderr
    assert both.exit_code == 2
    unknown = invoke("folds", "--instrument", "NQ", *lake)
    assert "--instrument NQ: the experiment has SP500" in unknown.stderr
    assert list(tmp_path.iterdir()) == []
