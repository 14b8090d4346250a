"""Which column of a file is which: declared places and names, or recognised headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backtest.data.issues import Findings

NAMES = ("time", "date", "open", "high", "low", "close", "volume", "roll", "symbol")
# Headers in lower case with everything but letters and digits removed.
ALIASES = {
    "time": (
        *("time", "date", "datetime", "timestamp", "timestamputc", "timeutc", "datetimeutc"),
        *("utc", "gmttime", "ts", "tsevent", "opentime", "dateutc"),
    ),
    "open": ("open", "o"),
    "high": ("high", "h"),
    "low": ("low", "l"),
    "close": ("close", "c", "last"),
    "volume": ("volume", "vol", "v"),
    "roll": ("roll",),
    "symbol": (
        *("ticker", "symbol", "contract", "instrument", "instrumentid", "security", "asset"),
        *("tic", "pair", "market", "rawsymbol"),
    ),
}
UNNAMED = ("", "indexlevel0", "unnamed0")
ADJUSTED = ("adjclose", "adjustedclose", "closeadj", "adjustclose")


@dataclass(frozen=True)
class Columns:
    """Places (from 0) of the columns in the file.

    Attributes:
        place: our name -> place; always holds time and the four prices. With "date" the time
            cell is a time of day to be put behind the date cell.
        chooses: the symbol column was declared: rows of this instrument are chosen by it.
    """

    place: Mapping[str, int]
    chooses: bool

    @property
    def wanted(self) -> list[int]:
        """The places to read, each once, in file order."""
        return sorted(set(self.place.values()))


def match(
    headers: Sequence[str],
    declared: Mapping[str, str | int] | None,
    findings: Findings,
    *,
    named: bool = True,
) -> Columns:
    """Find the columns by declaration first, by recognised header for the rest.

    Raises:
        DataError: duplicate, missing or ambiguous columns, each named, all at once.
    """
    plain = [normal(header) for header in headers]
    repeated = sorted({h for h in headers if h.strip() and list(headers).count(h) > 1})
    if named and repeated:
        findings.problem(
            f"row 1: the header names {', '.join(map(repr, repeated))} more than once; rename one"
        )
    place = declared_places(headers, declared or {}, findings, named=named)
    recognised = {}
    if named:
        recognised = recognise(headers, plain, place, findings)
        place |= recognised
    missing = [n for n in ("time", "open", "high", "low", "close") if n not in place]
    if missing and not findings.problems:
        seen = ", ".join(repr(h) for h in headers) if named else f"{len(headers)} columns"
        findings.problem(
            f"row 1: no column for {', '.join(missing)} among {seen}; name them in "
            f"{findings.key('csv.columns')}"
        )
    findings.refuse()
    if recognised:
        pairs = ", ".join(
            f"{ours} = {headers[p] or 'the unnamed'!r}" for ours, p in recognised.items()
        )
        findings.assume("assumed_columns", f"columns recognised by their header: {pairs}")
    adjusted = [headers[p] for p, name in enumerate(plain) if name in ADJUSTED]
    if named and adjusted and not set(adjusted) & {headers[p] for p in place.values()}:
        findings.assume(
            "unadjusted_prices", f"{adjusted[0]!r} is ignored: the unadjusted prices are used"
        )
    return Columns(place, chooses="symbol" in (declared or {}))


def declared_places(
    headers: Sequence[str],
    declared: Mapping[str, str | int],
    findings: Findings,
    *,
    named: bool,
) -> dict[str, int]:
    """Return the places of declared columns; what cannot be placed becomes a problem."""
    place = {}
    for ours, where in declared.items():
        key = findings.key(f"csv.columns.{ours}")
        if ours not in NAMES:
            findings.problem(f"{key}: unknown column; use {', '.join(NAMES)}")
        elif isinstance(where, int):
            if not 0 <= where < len(headers):
                findings.problem(
                    f"{key} = {where}: the file has {len(headers)} columns, counted from 0"
                )
            else:
                place[ours] = where
        elif not named:
            findings.problem(f"{key} = {where!r}: without a header give its place, from 0")
        elif where not in headers:
            known = ", ".join(repr(h) for h in headers)
            findings.problem(f"{key} = {where!r}: row 1 has no such header, only {known}")
        else:
            place[ours] = list(headers).index(where)
    return place


def recognise(
    headers: Sequence[str], plain: Sequence[str], place: Mapping[str, int], findings: Findings
) -> dict[str, int]:
    """Return the places of undeclared columns whose header is a known name."""
    found: dict[str, int] = {}
    taken = set(place.values())
    for ours, aliases in ALIASES.items():
        if ours in place:
            continue
        places = [p for p, name in enumerate(plain) if name in aliases and p not in taken]
        if ours == "time" and {plain[p] for p in places} == {"date", "time"}:
            found["date"] = plain.index("date")
            found["time"] = plain.index("time")
        elif len(places) > 1 and ours != "symbol":
            names = " and ".join(repr(headers[p]) for p in places)
            findings.problem(
                f"row 1: {names} may each be the {ours}; choose one in "
                f"{findings.key(f'csv.columns.{ours}')}"
            )
        elif places:
            found[ours] = places[0]
    if "time" not in place and "time" not in found and plain and plain[0] in UNNAMED:
        found["time"] = 0
    return found


def normal(header: str) -> str:
    """Return a header in lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", header.casefold())
