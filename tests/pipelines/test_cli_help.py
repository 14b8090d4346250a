"""The command line as a stranger meets it: help, examples, exit codes, a quick start."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from backtest.errors import DataError
from pipelines import cli

HEAVY = ("torch", "dagster", "pyopencl", "pandas", "numpy", "duckdb", "pyarrow", "pydantic", "arch")
NAMES = [command.__name__ for _, command, _ in cli.COMMANDS]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name):
    shown = invoke(name, "--help")
    assert shown.exit_code == 0
    assert f"Example: skillwalk {name}" in shown.output
    assert f"Usage: skillwalk {name}" in shown.output


def test_all_commands_are_there():
    assert set(NAMES) >= {"run", "folds", "ingest", "audit", "ab", "verify", "devices"}
    assert set(NAMES) >= {"bench", "simulate", "sql", "report", "ui"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"ui"}))
def test_every_command_with_figures_writes_json(name):
    assert "--json" in invoke(name, "--help").output


@pytest.mark.parametrize("name", ["run", "audit", "ab", "folds", "simulate"])
def test_commands_of_an_experiment_share_its_options(name):
    text = invoke(name, "--help").output
    assert all(option in text for option in ("--profile", "--set", "--lake"))


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom pipelines.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Exit codes" in done.stdout


def test_without_arguments_help_is_shown():
    assert "Usage: skillwalk" in invoke().output


def test_the_version_is_the_package_s():
    assert invoke("--version").output.startswith("skillwalk 0.")


def test_bad_usage_exits_with_2():
    assert invoke("fly").exit_code == 2
    assert invoke("folds", "--wings").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataError("x.csv: row 3: no"), 2, "error: x.csv: row 3: no\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_known_errors_are_one_line(monkeypatch, error, code, text):
    def fail():
        raise error

    monkeypatch.setattr("opencl.devices.all_devices", fail)
    done = invoke("devices")
    assert done.exit_code == code
    assert done.stderr == text
    assert done.stdout == ""


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail():
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("opencl.devices.all_devices", fail)
    done = invoke("devices")
    assert isinstance(done.exception, ZeroDivisionError)
    assert done.exit_code == 1
