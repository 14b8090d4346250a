"""A run in a process of its own: `python -m tests.pipelines.run_process LAKE SOURCE [SETTING]...`.

Prints how it ended.
"""

import sys
from pathlib import Path

from tests.pipelines import runs


def main() -> None:
    lake, source, *overrides = sys.argv[1:]
    outcome = runs.run(runs.study(Path(lake), Path(source), *overrides))
    print(outcome.status, len(outcome.folds))
    print(*(fold.reason for fold in outcome.folds), file=sys.stderr)


if __name__ == "__main__":
    main()
