"""What ingestion found: one `DataIssue` per kind, and the errors of a file collected together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backtest.config import IssuePolicies
from backtest.errors import DataError
from backtest.lake import atomic_write

SHOWN_RUNS = 5


@dataclass(frozen=True)
class DataIssue:
    """One row of the table `data_issue`.

    Attributes:
        instrument: its name in the configuration.
        source: the file or generator.
        kind: such as gap, jump, assumed_timezone.
        first_row: 1-based line of a text file (header counted) or row of a table; 0: whole file.
        rows: how many rows it concerns; 0: the whole file.
        policy: error, drop or keep, as declared.
        action: dropped, kept, sorted, zeroed or assumed.
        message: one sentence for people.
    """

    instrument: str
    source: str
    kind: str
    first_row: int
    rows: int
    policy: str
    action: str
    message: str


@dataclass
class Findings:
    """Issues and errors of one source while it is read and checked.

    Attributes:
        instrument: its name in the configuration.
        source: shown in every message.
        policies: what to do with each kind.
        issues: what is reported beside the bars.
        problems: sentences that refuse the file, raised together by `refuse`.
    """

    instrument: str
    source: str
    policies: IssuePolicies = field(default_factory=IssuePolicies)
    issues: list[DataIssue] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def key(self, name: str) -> str:
        """Return the full configuration key of a setting of this instrument."""
        bare = re.fullmatch(r"[\w-]+", self.instrument, re.ASCII)
        return f"instruments.{self.instrument if bare else repr(self.instrument)}.{name}"

    def assume(self, kind: str, message: str) -> None:
        """Record what was taken for granted because nothing declares it."""
        self._add(kind, 0, 0, "keep", "assumed", message)

    def note(self, kind: str, rows: npt.ArrayLike, message: str, policy: str = "keep") -> None:
        """Record something that was left as it is; `rows` are file rows."""
        numbers = np.atleast_1d(np.asarray(rows, np.int64))
        first = int(numbers[0]) if len(numbers) else 0
        self._add(kind, first, len(numbers), policy, "kept", message)

    def problem(self, sentence: str) -> None:
        """Record one reason to refuse the file: what, row and cure, without the full stop."""
        self.problems.append(sentence)

    def decide(
        self,
        kind: str,
        rows: npt.ArrayLike,
        what: str,
        *,
        setting: str | None = None,
        policy: str | None = None,
        kept: str | None = "kept",
        cure: str = "correct the file",
    ) -> str:
        """Apply the policy of one kind; return it, or "error" for rows that cannot be kept.

        Args:
            kind: name of the issue.
            rows: the file rows concerned, at least one.
            what: what is wrong with the first of them.
            setting: key of `IssuePolicies`; None: the same as the kind.
            policy: overrides the declared policy.
            kept: the action of "keep"; None: such rows cannot be kept, "keep" is an error.
            cure: the first half of the advice when it is an error.
        """
        setting = setting or kind
        policy = policy or str(getattr(self.policies, setting))
        numbers = np.atleast_1d(np.asarray(rows, np.int64))
        first = int(numbers.min())
        where = f"row {first}: {what}{listed(numbers)}"
        if policy == "error" or (policy == "keep" and kept is None):
            choices = '"drop"' if kept is None else f'"drop" or "keep" ({kept})'
            self.problem(f"{where}; {cure} or set {self.key(f'issues.{setting}')} = {choices}")
            return "error"
        action = "dropped" if policy == "drop" else str(kept)
        self._add(kind, first, len(numbers), policy, action, f"{where}; {action}")
        return policy

    def refuse(self) -> None:
        """Raise every problem found so far as one `DataError`, if there is any."""
        if not self.problems:
            return
        count = f"{len(self.problems)} problems: " if len(self.problems) > 1 else ""
        raise DataError(f"{self.source}: {count}{'. '.join(self.problems)}.")

    def _add(
        self, kind: str, first_row: int, rows: int, policy: str, action: str, message: str
    ) -> None:
        self.issues.append(
            DataIssue(self.instrument, self.source, kind, first_row, rows, policy, action, message)
        )


def listed(rows: npt.NDArray[np.int64]) -> str:
    """Return ` (5 rows: 5, 9, 12-14)`, shortened, or nothing for a single row."""
    if len(rows) < 2:
        return ""
    rows = np.sort(rows)
    edges = np.flatnonzero(np.diff(rows) > 1)
    starts, stops = rows[np.append(0, edges + 1)], rows[np.append(edges, len(rows) - 1)]
    runs = [
        f"{first}" if first == last else f"{first}-{last}"
        for first, last in zip(starts[:SHOWN_RUNS], stops[:SHOWN_RUNS], strict=True)
    ]
    return f" ({len(rows):,} rows: {', '.join(runs)}{', ...' if len(starts) > SHOWN_RUNS else ''})"


def write_issues(issues: Sequence[DataIssue], path: Path) -> None:
    """Write the issues as Parquet, to a temporary name first; no issue is a file of no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("instrument", "source", "kind", "policy", "action", "message")
    columns = [
        pa.field(name, pa.string() if name in texts else pa.int64())
        for name in DataIssue.__dataclass_fields__
    ]
    table = pa.Table.from_pylist([asdict(issue) for issue in issues], schema=pa.schema(columns))
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)


def read_issues(path: Path) -> tuple[DataIssue, ...]:
    """Read a file that `write_issues` made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, partitioning=None).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read ({error}); run `skillwalk ingest`") from None
    return tuple(DataIssue(**row) for row in rows)
