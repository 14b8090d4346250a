"""`devices`, `verify` and `bench`: figures, summary lines and exit codes."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opencl.devices import all_devices
from opencl.exchange import way_to_torch
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
    way = found[0]["exchange"]
    assert way == way_to_torch(all_devices()[0])
    assert "to torch" in done.stdout


def test_devices_says_why_no_faster_way_to_torch_was_taken(monkeypatch):
    slow = {"learner": "cuda:0", "way": "copies", "reason": "no pinned: the driver refuses"}
    monkeypatch.setattr("opencl.exchange.way_to_torch", lambda device: slow)
    name = all_devices()[0].name
    assert f"{name}, copies: no pinned: the driver refuses" in invoke("devices").stdout


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


@pytest.fixture
def checkout(monkeypatch, tmp_path):
    """An empty checkout whose benchmarks are recorded, not run; they end with `checkout.code`."""
    root = tmp_path / "checkout"
    (root / "tests" / "bench").mkdir(parents=True)
    monkeypatch.setattr(devices, "__file__", str(root / "pipelines" / "commands" / "devices.py"))

    def run(command, cwd, check):
        run.calls.append((command[1:], cwd))
        rows = [{"figure": 1.5}, {"figure": None}]
        out = Path(command[command.index("--json") + 1])
        out.write_text(json.dumps({"device": {"name": "Made"}, "rows": rows}))
        return subprocess.CompletedProcess(command, run.code)

    run.calls, run.code, run.root = [], 0, root
    monkeypatch.setattr(subprocess, "run", run)
    return run


def test_bench_needs_a_checkout(checkout):
    done = invoke("bench")
    assert done.exit_code == 2
    assert "run bench from a complete checkout" in done.stderr
    assert checkout.calls == []


def test_bench_ends_with_one_line(checkout, tmp_path):
    (checkout.root / "tests" / "bench" / "__main__.py").touch()
    out = tmp_path / "rates.json"
    done = invoke("bench", "--quick", "--device", "cpu", "--json", out)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "bench Made: 1 figure, 1 not measured"
    assert json.loads(out.read_text())["rows"][0] == {"figure": 1.5}
    ((command, folder),) = checkout.calls
    assert command[:4] == ["-m", "tests.bench", "--device", "cpu"]
    assert (command[-1], folder) == ("--quick", checkout.root)


def test_bench_hands_its_parts_and_its_folder_on(checkout, tmp_path, monkeypatch):
    (checkout.root / "tests" / "bench" / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert invoke("bench", "--only", "bank", "--only", "market", "--plots", "p").exit_code == 0
    ((command, _),) = checkout.calls
    assert command[-3:] == ["--only=bank", "--only=market", f"--plots={tmp_path / 'p'}"]


@pytest.mark.parametrize(("ended", "code"), [(1, 1), (3, 3), (-9, 1)])
def test_a_failed_benchmark_writes_no_figures(checkout, tmp_path, ended, code):
    (checkout.root / "tests" / "bench" / "__main__.py").touch()
    checkout.code = ended
    out = tmp_path / "rates.json"
    done = invoke("bench", "--json", out)
    assert done.exit_code == code
    assert done.stdout.splitlines()[-1].startswith(f"bench: FAILED, exit code {ended}")
    assert not out.exists()
