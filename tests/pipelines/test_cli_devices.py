"""`devices`, `verify` and `bench`: figures, summary lines and exit codes."""

import json
import subprocess
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from opencl.devices import all_devices
from opencl.verify import Row, Verification
from pipelines import cli
from pipelines.commands import devices

ROWS = (
    Row("actions, calibrated, close, lots", "reward", 100, 0, 0.0, True),
    Row("actions, composite, close, lots", "reward", 100, 0, 0.0, True),
    Row("rollout, calibrated", "action values", 50, 0, 1e-6, True),
)
FOUND = Verification("Made Device", True, ROWS)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_devices_lists_them_and_says_which_one_auto_takes(tmp_path):
    out = tmp_path / "devices.json"
    done = invoke("devices", "--json", out)
    assert done.exit_code == 0
    found = json.loads(out.read_text())["devices"]
    assert [device["name"] for device in found] == [device.name for device in all_devices()]
    assert done.stdout.splitlines()[2].startswith("auto")
    assert found[0]["name"] in done.stdout.splitlines()[2]


def test_no_device_says_what_to_install(monkeypatch):
    monkeypatch.setattr("opencl.devices.all_devices", lambda: ())
    done = invoke("devices")
    assert done.exit_code == 2
    assert "found: none" in done.stderr
    assert "install" in done.stderr
    assert "no OpenCL device fits" in invoke("verify", "--device", "abacus").stderr


def verified(monkeypatch, found):
    monkeypatch.setattr("opencl.verify.verify", lambda device, seed, report: found)


def test_verify_adds_up_columns_and_ends_with_one_line(monkeypatch, tmp_path):
    verified(monkeypatch, FOUND)
    out = tmp_path / "verify.json"
    done = invoke("verify", "--json", out)
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["actions", "reward", "200", "0", "0", "equal"] in lines
    assert ["rollout", "action", "values", "50", "0", "1e-06", "within", "tolerance"] in lines
    assert done.stdout.splitlines()[-1] == ("verify Made Device: all 3 columns agree (250 values)")
    (value,) = json.loads(out.read_text())["devices"]
    assert (value["ok"], len(value["rows"])) == (True, 3)


def test_a_difference_exits_with_1(monkeypatch):
    broken = replace(ROWS[1], different=3, largest=0.5, ok=False)
    verified(monkeypatch, replace(FOUND, rows=(ROWS[0], broken)))
    done = invoke("verify")
    assert done.exit_code == 1
    assert "DIFFERENT" in done.stdout
    assert "FAIL actions, composite, close, lots: reward: 3 of 100 differ" in done.stdout
    assert done.stdout.splitlines()[-1] == "verify Made Device: 1 of 2 columns DIFFER"


def test_verify_takes_every_device(monkeypatch):
    verified(monkeypatch, FOUND)
    last = invoke("verify", "--all").stdout.splitlines()[-1]
    assert last.count("verify Made Device") == len(all_devices())


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (3, 3), (-2, 1)])
def test_bench_runs_the_checkout_s_benchmarks(monkeypatch, tmp_path, ended, code):
    calls = []

    def run(command, cwd, check):
        calls.append((command[1:], cwd))
        return subprocess.CompletedProcess(command, ended)

    root = tmp_path / "checkout"
    (root / "tests" / "bench").mkdir(parents=True)
    monkeypatch.setattr(devices, "__file__", str(root / "pipelines" / "commands" / "devices.py"))
    monkeypatch.setattr(subprocess, "run", run)
    assert invoke("bench").exit_code == 2  # nothing to run there yet
    (root / "tests" / "bench" / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert invoke("bench", "--quick", "--json", "rates.json").exit_code == code
    expected = ["-m", "tests.bench", "--quick", "--json", str(tmp_path / "rates.json")]
    assert calls == [(expected, root)]
