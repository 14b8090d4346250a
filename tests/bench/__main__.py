"""All benchmarks by one command: `python -m tests.bench [--quick] [--device X] [--only PART]`.

Prints one table; a figure without the device, the date and the command beside it means nothing,
so they are printed too and written to the JSON file, after every part. A part whose two sides do
not compute the same is not timed; it is named at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

from opencl.devices import Device, select
from tests.bench import report
from tests.bench.rows import Row

# Modules here, then in `peers`; each has `run(device, quick) -> list[Row]`.
OURS = (
    "market",
    "rollout",
    "scenario",
    "bank",
    "learner",
    "transfer",
    "evaluation",
    "strategies",
    "walkforward",
    "smoke",
    "memory",
    "features",
)
PEERS = (
    "parallel_numba",
    "vectorbt_portfolio",
    "anytrading",
    "gymnasium_torch",
    "feature_peers",
)
PARTS = (*OURS, *PEERS)


def main() -> int:
    """Measure, print, and return the exit code: 1 where both sides did not compute the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, about half a minute")
    parser.add_argument("--device", default="auto", help="as runtime.device of an experiment")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to measure")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plots", type=Path, help="draw curves and peers into this folder")
    given = parser.parse_args()
    device = select(given.device)
    parts: dict[str, list[Row]] = {}
    wrong = []
    for part in dict.fromkeys(given.only or PARTS):
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        try:
            parts[part] = measure(part, device, given.quick)
        except AssertionError as unequal:
            wrong.append(f"FAIL {part}: {unequal}")
        except Exception as error:  # the other parts' figures are not lost for it
            traceback.print_exc()
            wrong.append(f"FAIL {part}: {type(error).__name__}: {error}")
        run = report.figures(device, parts)
        if given.json:
            given.json.write_text(json.dumps(run, indent=1) + "\n")
    report.show(run)
    if given.plots:
        from tests.bench.plots import draw

        for path in draw([run], given.plots):
            print(f"drew {path}", file=sys.stderr)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def measure(part: str, device: Device, quick: bool) -> list[Row]:
    """Return the rows of one part; a part whose packages are missing says so in its row."""
    folder = "tests.bench.peers" if part in PEERS else "tests.bench"
    try:
        rows: list[Row] = import_module(f"{folder}.{part}").run(device, quick)
        return rows
    except ModuleNotFoundError as missing:
        return [Row(part, float("nan"), "", f"not measured: no module {missing.name}")]


if __name__ == "__main__":
    sys.exit(main())
