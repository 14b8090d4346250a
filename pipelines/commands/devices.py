"""`skillwalk devices`, `verify` and `bench`: what is there, is it exact, how fast is it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import JsonFile
from pipelines.console import table, write_figures

DEVICES_EXAMPLE = "Example: skillwalk devices --json devices.json"
VERIFY_EXAMPLE = "Example: skillwalk verify --device cpu"
BENCH_EXAMPLE = "Example: skillwalk bench --quick --json rates.json"
DEVICE_COLUMNS = ("", "kind", "name", "platform", "driver", "units", "memory", "float32")


def devices(json: JsonFile = None) -> None:
    """List the OpenCL devices, the one that `auto` takes first, and whether they are exact.

    float32 is exact where additions, products, quotients and roots have the bits of NumPy: then
    every market column equals the definition.
    """
    from opencl.devices import all_devices, select

    if not all_devices():
        select()  # says what is missing and which command installs it
    found = [device.describe() for device in all_devices()]
    rows = []
    for place, device in enumerate(found):
        exact = {True: "exact", False: f"not exact: {', '.join(device['inexact'])}"}
        rows.append(
            (
                "auto" if place == 0 else "",
                device["kind"],
                device["name"],
                device["platform"],
                device["driver"],
                device["compute_units"],
                f"{device['global_memory'] / 2**30:.1f} GiB",
                device["problem"] or exact[device["correctly_rounded"]],
            )
        )
    table(DEVICE_COLUMNS, rows)
    write_figures(json, {"devices": found})


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, about a minute.")] = False,
    json: JsonFile = None,
) -> None:
    """Measure this machine: market, rollout and learner rates, each beside its peer.

    Needs a checkout: the benchmarks live in tests/bench.
    """
    import subprocess
    import sys

    root = Path(__file__).resolve().parents[2]
    if not (root / "tests" / "bench" / "__main__.py").is_file():
        raise ConfigError(
            f"{root / 'tests' / 'bench'}: no benchmarks here; run bench from a complete checkout"
        )
    command = [sys.executable, "-m", "tests.bench"]
    command += ["--quick"] if quick else []
    command += ["--json", str(json.absolute())] if json else []
    ended = subprocess.run(command, cwd=root, check=False)
    # a signal's number is negative: the benchmark did not end by itself
    raise typer.Exit(ended.returncode if ended.returncode >= 0 else 1)
