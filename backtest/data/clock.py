"""Wall clocks and UTC. The host's own time zone plays no part."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from backtest.data.bars import Flags, Ints
from backtest.errors import ConfigError

UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z")


def check_zone(name: str, key: str) -> None:
    """Raise `ConfigError` for a name that is no IANA time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{key} = {name!r}: no such time zone; give an IANA name such as America/New_York"
        ) from None


def local(time: Ints, zone: str) -> Ints:
    """Return the wall clock of a zone, ns since 1970, for times in ns UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if zone in UTC:
        return time
    clock = pc.local_timestamp(pa.array(time, pa.timestamp("ns", zone)))
    return np.asarray(clock.cast(pa.int64()))


def utc(wall: Ints, zone: str) -> tuple[Ints, Flags, Flags]:
    """Return UTC for the wall clock of a zone, all ns since 1970.

    Also returns which readings never happened (skipped when clocks go forward) and which
    happened twice (when they go back); their UTC is the first guess and must not be used.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    none = np.zeros(len(wall), bool)
    if zone in UTC:
        return wall, none, none
    clock = pa.array(wall, pa.timestamp("ns"))

    def resolve(side: str) -> Ints:
        times = pc.assume_timezone(clock, zone, ambiguous=side, nonexistent=side)
        return np.asarray(times.cast(pa.int64()))

    early, late = resolve("earliest"), resolve("latest")
    # A skipped reading becomes the last ns before the jump or the first after it.
    skipped = late - early == 1
    return early, skipped, (late != early) & ~skipped


def moment(time: int) -> str:
    """Return a time in ns for people, midnight as a date."""
    text = str(np.datetime64(int(time), "ns"))
    return text.removesuffix("T00:00:00.000000000").removesuffix(".000000000").replace("T", " ")
