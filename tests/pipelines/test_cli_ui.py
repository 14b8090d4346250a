"""`ui`: which experiment the code server shows, and how the servers are started."""

import json

import pytest
from typer.testing import CliRunner

from backtest.errors import ConfigError
from pipelines import cli


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def served(monkeypatch):
    """Record what would be served; the server ends at once with `code`."""
    calls = []

    def serve(command, address, port, ready, *, environment, folder):
        ready()
        calls.append((command, address, port, environment, folder))
        return served.code

    served.code = 0
    served.calls = calls
    monkeypatch.setattr("pipelines.server.serve", serve)
    return served


def test_the_servers_listen_here_on_the_lake_s_home(served, tmp_path):
    lake = tmp_path / "lake"
    done = invoke("ui", "--lake", lake, "--port", 4321)
    assert done.exit_code == 0, done.output
    assert "starting Dagster for profile smoketest" in done.stdout
    assert "open http://127.0.0.1:4321 (Ctrl-C ends it)" in done.stdout
    assert done.stdout.splitlines()[-1] == "stopped"
    ((command, address, port, environment, folder),) = served.calls
    home = lake / ".dagster"
    assert (address, port, folder) == ("127.0.0.1", 4321, home)
    assert environment == {"DAGSTER_HOME": str(home)}
    assert command[-6:] == ["-h", "127.0.0.1", "-p", "4321", "--log-level", "warning"]
    assert (home / "dagster.yaml").is_file()


def test_the_experiment_of_the_lake_is_shown_until_another_is_named(served, tmp_path):
    lake = tmp_path / "lake"
    change = ("--set", "learner.updates=77")
    assert invoke("ui", "--profile", "production", *change, "--lake", lake).exit_code == 0
    done = invoke("ui", "--lake", lake)
    assert "starting Dagster for profile production" in done.stdout
    saved = json.loads((lake / "experiment.json").read_text())
    assert saved["config"]["learner"]["updates"] == 77
    assert saved["overrides"] == ["learner.updates=77"]
    assert (
        "starting Dagster for profile smoketest"
        in invoke("ui", "--profile", "smoketest", "--lake", lake).stdout
    )


def test_a_server_that_fails_exits_with_1(served, tmp_path):
    served.code = 3
    assert invoke("ui", "--lake", tmp_path / "lake").exit_code == 1


def test_a_taken_port_exits_with_2(monkeypatch, tmp_path):
    def taken(*arguments, **options):
        raise ConfigError("--port 3000: something else listens there")

    monkeypatch.setattr("pipelines.server.serve", taken)
    done = invoke("ui", "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert "something else listens" in done.stderr


def test_mistakes_are_found_before_a_home_is_made(served, tmp_path):
    done = invoke("ui", "--set", "learner.updatez=1", "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert invoke("ui", "--port", "0", "--lake", tmp_path / "lake").exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert served.calls == []
