"""Size report: files and lines by folder, and every product file over its limit.

`python -m tests.size` prints it; a file longer than the limit fails the check.
"""

import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("backtest", "opencl", "assets", "pipelines")
SUFFIXES = (".py", ".cl")  # schema.sql and views.sql are declarations
LIMIT = 350


def lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> int:
    """Print the report and return the exit code."""
    long = []
    for folder in FOLDERS:
        sizes = {
            path: lines(path)
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in SUFFIXES
        }
        if sizes:
            counts = sizes.values()
            print(
                f"{folder:10} {len(sizes):3} files {sum(counts):6} lines, "
                f"median {median(counts):3.0f}, largest {max(counts)}"
            )
        long += [(path, size) for path, size in sizes.items() if size > LIMIT]
    for path, size in long:
        print(f"{path.relative_to(ROOT)}: {size} lines, the limit is {LIMIT}; split it")
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main())
