"""`skillwalk devices`, `verify` and `bench`: what is there, is it exact, how fast is it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backtest.errors import ConfigError
from pipelines.commands.options import JsonFile
from pipelines.console import Step, progress, say, table, write_figures

if TYPE_CHECKING:
    from opencl.differences import Row
    from opencl.verify import Verification

DEVICES_EXAMPLE = "Example: skillwalk devices --json devices.json"
VERIFY_EXAMPLE = "Example: skillwalk verify --device cpu"
BENCH_EXAMPLE = "Example: skillwalk bench --quick --only market --only rollout --json rates.json"
DeviceName = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="auto, gpu, cpu, or a part of a device's name."),
]
PARTS = 13  # progress reports of a verification
DEVICE_COLUMNS = (
    *("", "kind", "name", "platform", "driver", "units", "memory", "float32"),
    "to torch",
)


def devices(json: JsonFile = None) -> None:
    """List the OpenCL devices, the one that `auto` takes first, and whether they are exact.

    float32 is exact where additions, products, quotients and roots have the bits of NumPy: then
    every market column equals the definition. "to torch" is how experience reaches the learner on
    its torch device, tried on the spot.
    """
    from opencl.devices import all_devices, select
    from opencl.exchange import way_to_torch

    if not all_devices():
        select()  # says what is missing and which command installs it
    found = [device.describe() | {"exchange": way_to_torch(device)} for device in all_devices()]
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
                f"{device['exchange']['way']} ({device['exchange']['learner']})",
            )
        )
    table(DEVICE_COLUMNS, rows)
    for device in found:
        if device["exchange"]["reason"]:
            say(f"{device['name']}, {device['exchange']['way']}: {device['exchange']['reason']}")
    write_figures(json, {"devices": found})


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, under a minute.")] = False,
    device: DeviceName = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PART", show_default=False, help="One part; may be repeated."
        ),
    ] = None,
    json: JsonFile = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            "--plots", metavar="DIR", show_default=False, help="Draw curves and peers into it."
        ),
    ] = None,
) -> None:
    """Measure this machine, beside those peers that are installed; exit 1 on a wrong result.

    Both sides must compute the same before either is timed. Needs a checkout: the benchmarks live
    in tests/bench. `make bench` installs the peers (numba, vectorbt, gymnasium, gym-anytrading).
    """
    import subprocess
    import sys
    from tempfile import TemporaryDirectory

    from backtest.figures import counted
    from backtest.lake import read_json

    root = Path(__file__).resolve().parents[2]
    if not (root / "tests" / "bench" / "__main__.py").is_file():
        raise ConfigError(
            f"{root / 'tests' / 'bench'}: no benchmarks here; run bench from a complete checkout"
        )
    with TemporaryDirectory() as folder:
        out = Path(folder) / "rates.json"
        command = [sys.executable, "-m", "tests.bench", "--device", device, "--json", str(out)]
        command += ["--quick"] * quick + [f"--only={part}" for part in only or ()]
        command += [f"--plots={plots.absolute()}"] if plots else []
        ended = subprocess.run(command, cwd=root, check=False)
        if ended.returncode:
            say(f"bench: FAILED, exit code {ended.returncode}; no figures written")
            # a signal's number is negative: the benchmark did not end by itself
            raise typer.Exit(max(ended.returncode, 1))
        figures = read_json(out)
    write_figures(json, figures)
    missing = sum(row["figure"] is None for row in figures["rows"])
    left = f", {missing} not measured" if missing else ""
    measured = counted(len(figures["rows"]) - missing, "figure")
    say(f"bench {figures['device']['name']}: {measured}{left}")


def verify(
    device: DeviceName = "auto",
    every: Annotated[bool, typer.Option("--all", help="Every device, one after another.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of bars and actions.")] = 0,
    json: JsonFile = None,
) -> None:
    """Compare the kernels with their NumPy definition on this device; exit 1 on a difference.

    Rough bars, both reward formulas, both fills, whole and fractional lots: all columns of given
    actions and targets, the random numbers, a whole rollout and skill banks.
    """
    from opencl.devices import all_devices, select
    from opencl.verify import verify as compare

    chosen = all_devices() if every and all_devices() else (select(device),)
    done = []
    for one in chosen:
        with progress(f"verify {one.name}", PARTS) as step:
            parts = count()

            def report(text: str, step: Step = step, parts: Iterator[int] = parts) -> None:
                step(next(parts), text)

            done.append(compare(one, seed, report))
        show(done[-1])
    write_figures(json, {"devices": [asdict(found) | {"ok": found.ok} for found in done]})
    say("; ".join(verdict(found) for found in done))
    raise typer.Exit(0 if all(found.ok for found in done) else 1)


def show(found: Verification) -> None:
    """Print what was compared, by column; market rules of a kind are added up."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        groups.setdefault((row.what.partition(",")[0], row.column), []).append(row)
    lines = []
    for (what, column), rows in groups.items():
        values, different = (sum(getattr(r, n) for r in rows) for n in ("values", "different"))
        largest = max(row.largest for row in rows)
        word = "within tolerance" if largest else "equal"
        word = word if all(row.ok for row in rows) else "DIFFERENT"
        lines.append((what, column, f"{values:,}", f"{different:,}", largest, word))
    exact = "exact float32" if found.exact else "float32 without correct rounding"
    table(("what", "column", "values", "differ", "largest", ""), lines, f"{found.device}, {exact}")
    for row in found.failed:
        say(f"FAIL {row.what}: {row.column}: {row.different:,} of {row.values:,} differ")
    say()


def verdict(found: Verification) -> str:
    """Return one line: how many columns and values agree."""
    values = sum(row.values for row in found.rows)
    if found.ok:
        return f"verify {found.device}: all {len(found.rows):,} columns agree ({values:,} values)"
    return f"verify {found.device}: {len(found.failed)} of {len(found.rows):,} columns DIFFER"
