"""The bars of one instrument on one global axis, and their Parquet file.

Row b of the arrays is bar b; times are bar closes in UTC. Reading sources is not done here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.calendar_windows import DAY_NS
from backtest.errors import DataError
from backtest.lake import atomic_write

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Days = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

VERSION = "1"
ROW_GROUP = 1 << 18  # rows
DTYPES = {
    "time": np.int64,
    "open": np.float64,
    "high": np.float64,
    "low": np.float64,
    "close": np.float64,
    "volume": np.float64,
    "roll": np.bool_,
    "session": np.int32,
}


@dataclass(frozen=True, eq=False)
class Bars:
    """Clean bars, strictly increasing in time.

    Attributes:
        instrument: its name in the configuration.
        time: int64[n], bar close, ns since 1970 UTC.
        open: float64[n], points; high, low and close likewise.
        high: float64[n].
        low: float64[n].
        close: float64[n].
        volume: float64[n], units of the source; 0 where unknown.
        roll: bool[n], True where open[b] is the first price of a new contract.
        session: int32[n], session date as days since 1970.
        volume_known: False where volume is absent or zero on more than 99 % of the rows.
    """

    instrument: str
    time: Ints
    open: Floats
    high: Floats
    low: Floats
    close: Floats
    volume: Floats
    roll: Flags
    session: Days
    volume_known: bool = True

    @classmethod
    def of_prices(cls, instrument: str, time: Ints, open_: Floats, close: Floats) -> Bars:
        """Return bars of opens and closes alone, for what trades with market orders.

        Sessions are UTC dates, nothing rolls, the volume is unknown.

        Args:
            instrument: its name in the configuration.
            time: int64[n] ns or datetime64[n], bar close, UTC.
            open_: float64[n], points.
            close: float64[n].
        """
        time = np.asarray(time).astype("datetime64[ns]").astype(np.int64)
        open_, close = np.asarray(open_, np.float64), np.asarray(close, np.float64)
        high, low = np.maximum(open_, close), np.minimum(open_, close)
        n, session = len(time), ((time - 1) // DAY_NS).astype(np.int32)
        return cls(
            instrument, time, open_, high, low, close, np.zeros(n), np.zeros(n, np.bool_), session,
            volume_known=False,
        )  # fmt: skip

    def __post_init__(self) -> None:
        for name, dtype in DTYPES.items():
            column = getattr(self, name)
            if column.dtype != dtype or column.shape != self.time.shape:
                raise DataError(
                    f"bars of {self.instrument}: column {name} is {column.dtype}{column.shape}, "
                    f"expected {np.dtype(dtype)}({len(self.time)},)"
                )
        back = np.flatnonzero(np.diff(self.time) <= 0)
        if len(back):
            raise DataError(
                f"bars of {self.instrument}: bar {back[0] + 1} is not later than the bar before it"
            )

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of all columns, little endian, in declared order."""
        digest = hashlib.sha256()
        for name, dtype in DTYPES.items():
            column = getattr(self, name).astype(np.dtype(dtype).newbyteorder("<"), copy=False)
            digest.update(f"{name}:{len(self)};".encode())
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()

    def prefix(self, stop: int) -> Bars:
        """Return bars [0, stop) as views."""
        return replace(self, **{name: getattr(self, name)[:stop] for name in DTYPES})


def schema() -> Any:
    """Return the Arrow schema of a bars file, without its metadata."""
    import pyarrow as pa

    prices = [pa.field(name, pa.float64()) for name in ("open", "high", "low", "close", "volume")]
    return pa.schema(
        [
            pa.field("time", pa.timestamp("ns", "UTC")),
            *prices,
            pa.field("roll", pa.bool_()),
            pa.field("session", pa.date32()),
        ]
    )


def write_bars(bars: Bars, path: Path) -> None:
    """Write the Parquet file of the bars, to a temporary name first."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {
        "skillwalk.bars": VERSION,
        "instrument": bars.instrument,
        "volume_known": str(int(bars.volume_known)),
        "content_hash": bars.content_hash,
    }
    columns = [pa.array(getattr(bars, field.name), field.type) for field in schema()]
    table = pa.Table.from_arrays(columns, schema=schema().with_metadata(metadata))
    with atomic_write(path) as temporary:
        pq.write_table(
            table, temporary, row_group_size=ROW_GROUP, use_dictionary=False, compression="zstd"
        )


def read_bars(path: Path) -> Bars:
    """Read a file that `write_bars` made.

    Raises:
        DataError: missing, truncated, or not a bars file of this version.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    cure = "run `skillwalk ingest` again"
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read as bars ({error}); {cure}") from None
    metadata = table.schema.metadata or {}
    if metadata.get(b"skillwalk.bars") != VERSION.encode() or table.schema.remove_metadata() != (
        schema()
    ):
        raise DataError(f"{path}: not a bars file of version {VERSION}; {cure}")
    table = table.set_column(0, "time", table["time"].cast(pa.int64()))
    table = table.set_column(7, "session", table["session"].cast(pa.int32()))
    columns = {name: np.require(table[name].to_numpy(), requirements="W") for name in DTYPES}
    return Bars(
        instrument=metadata[b"instrument"].decode(),
        volume_known=metadata[b"volume_known"] == b"1",
        **columns,
    )
