"""Times written as text: the readings we know, and which of them a file is written in.

A reading is a regular expression with named parts, so that every row is checked, calendar
included; a row that does not fit is not a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from backtest.data.bars import Flags, Ints
from backtest.data.raw import NO_TIME
from backtest.errors import ConfigError

SECOND = 1_000_000_000  # ns
DAY = 86_400 * SECOND
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
SLICE = 4096  # rows looked at together while several readings are left
YEARS = (1678, 2261)  # what int64 nanoseconds hold

CLOCK = (
    r"(?:[ T]+(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
    r"(?: ?(?P<p>[AaPp][Mm]))?(?: ?(?P<z>[Zz]|UTC|GMT|[+-]\d{2}:?\d{2}))?)?"
)
EPOCH_UNITS = {"epoch_s": SECOND, "epoch_ms": 1_000_000, "epoch_us": 1000, "epoch_ns": 1}
DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]+)",
    "B": r"(?P<b>[A-Za-z]+)",
    "d": r"(?P<d>\d{1,2})",
    "H": r"(?P<H>\d{1,2})",
    "I": r"(?P<H>\d{1,2})",
    "M": r"(?P<M>\d{1,2})",
    "S": r"(?P<S>\d{1,2})",
    "f": r"(?P<f>\d{1,9})",
    "p": r"(?P<p>[AaPp][Mm])",
    "z": r"(?P<z>[Zz]|UTC|GMT|[+-]\d{2}:?\d{2})",
    "%": "%",
}


@dataclass(frozen=True)
class Reading:
    """One way to read a time.

    Attributes:
        name: shown to people.
        pattern: regular expression with groups named like strptime's letters.
        unit: ns per unit of a number since 1970; 0 for dates.
    """

    name: str
    pattern: str
    unit: int = 0


ISO = Reading("YYYY-MM-DD", rf"^(?P<Y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){CLOCK}$")
COMPACT = Reading(
    "YYYYMMDD",
    r"^(?P<Y>\d{4})(?P<m>\d{2})(?P<d>\d{2})(?:[ T]?(?P<H>\d{2}):?(?P<M>\d{2})"
    r"(?::?(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?)?$",
)
DAY_FIRST = Reading(
    "day/month/year", rf"^(?P<d>\d{{1,2}})[-/.](?P<m>\d{{1,2}})[-/.](?P<Y>\d{{4}}){CLOCK}$"
)
MONTH_FIRST = Reading(
    "month/day/year", rf"^(?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})[-/.](?P<Y>\d{{4}}){CLOCK}$"
)
# The number of digits tells the unit for every date from 2001 to 2286.
EPOCHS = tuple(
    Reading(name, rf"^(?P<E>\d{{{digits}}})(?:\.(?P<f>\d{{1,9}}))?$", EPOCH_UNITS[name])
    for name, digits in (("epoch_s", 10), ("epoch_ms", 13), ("epoch_us", 16), ("epoch_ns", 19))
)
KNOWN = (ISO, COMPACT, DAY_FIRST, MONTH_FIRST, *EPOCHS)


@dataclass(frozen=True)
class Stamps:
    """Parsed times.

    Attributes:
        ns: int64[n] since 1970, of UTC where `zoned`, else of the source's clock; NO_TIME where
            the text is not a time.
        zoned: bool[n], the text carries an offset.
        timed: some text carries a time of day.
    """

    ns: Ints
    zoned: Flags
    timed: bool


def declared(date_format: str, key: str) -> Reading:
    """Return the reading of a strptime format or of epoch_s, epoch_ms, epoch_us, epoch_ns.

    Raises:
        ConfigError: a directive that is not supported, or one given twice.
    """
    if date_format in EPOCH_UNITS:
        pattern = r"^(?P<E>-?\d{1,19})(?:\.(?P<f>\d{1,9}))?$"
        return Reading(date_format, pattern, EPOCH_UNITS[date_format])
    expression = ""
    for letter, literal in re.findall(r"%(.)|([^%])", date_format):
        if letter and letter not in DIRECTIVES:
            raise ConfigError(
                f"{key} = {date_format!r}: %{letter} is not supported; "
                f"use {' '.join('%' + d for d in DIRECTIVES)} or {', '.join(EPOCH_UNITS)}"
            )
        expression += DIRECTIVES[letter] if letter else re.escape(literal)
    try:
        groups = re.compile(expression).groupindex
    except re.error:
        raise ConfigError(f"{key} = {date_format!r}: a directive is given twice") from None
    if not ({"Y", "y"} & set(groups) and {"m", "b"} & set(groups) and "d" in groups):
        raise ConfigError(f"{key} = {date_format!r}: needs year, month and day")
    return Reading(date_format, f"^{expression}$")


def parse(reading: Reading, text: Any) -> Stamps:
    """Read trimmed text (an Arrow string array) row by row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if reading is ISO:
        for zone in (None, "UTC"):
            try:
                stamps = text.cast(pa.timestamp("ns", zone)).cast(pa.int64())
            except pa.ArrowInvalid:
                continue
            timed = (pc.max(pc.utf8_length(text)).as_py() or 0) > len("2000-01-01")
            ns = np.asarray(stamps.fill_null(NO_TIME))
            return Stamps(ns, np.full(len(text), zone is not None), timed)

    names = set(re.compile(reading.pattern).groupindex)
    parts = pc.extract_regex(text, reading.pattern)
    ok = np.array(parts.is_valid())

    def words(name: str) -> Any:
        return pc.fill_null(pc.struct_field(parts, name), "")

    def number(name: str, default: int) -> Ints:
        if name not in names:
            return np.full(len(text), default, np.int64)
        digits = words(name)
        digits = pc.if_else(pc.equal(digits, ""), str(default), digits)
        return np.asarray(digits.cast(pa.int64()))

    fraction = np.zeros(len(text), np.int64)  # ns of a second, or of a unit
    if "f" in names:
        fraction = np.asarray(pc.utf8_rpad(words("f"), 9, "0").cast(pa.int64()))
    if reading.unit:
        return epoch(words("E"), fraction, ok, reading.unit)

    year = number("Y", 0) if "Y" in names else number("y", 0)
    if "Y" not in names:
        year = year + np.where(year < 69, 2000, 1900)  # POSIX pivot
    if "b" in names:
        short = pc.utf8_slice_codeunits(pc.utf8_lower(words("b")), 0, 3)
        month = pc.fill_null(pc.index_in(short, pa.array(MONTHS)), -1)
        month = np.asarray(month, np.int64) + 1
    else:
        month = number("m", 1)
    hour = number("H", 0)
    if "p" in names:
        half = pc.utf8_lower(words("p"))
        marked = np.asarray(pc.not_equal(half, ""))
        ok &= ~marked | ((hour >= 1) & (hour <= 12))
        afternoon = np.asarray(pc.equal(half, "pm"))
        hour = np.where(marked, hour % 12 + 12 * afternoon, hour)
    zoned, offset = offsets(words("z")) if "z" in names else (np.zeros(len(text), bool), 0)
    day, minute, second = number("d", 1), number("M", 0), number("S", 0)

    ok &= (month >= 1) & (month <= 12) & (year >= YEARS[0]) & (year <= YEARS[1])
    ok &= (hour < 24) & (minute < 60) & (second < 60)
    months = (np.where(ok, year, 1970) - 1970) * 12 + np.where(ok, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    ok &= (day >= 1) & (day <= after - first)
    seconds = hour * 3600 + minute * 60 + second - offset
    ns = (first + day - 1) * DAY + seconds * SECOND + fraction
    timed = "H" in names and bool(np.asarray(pc.not_equal(words("H"), "")).any())
    return Stamps(np.where(ok, ns, NO_TIME), zoned & ok, timed)


def epoch(digits: Any, fraction: Ints, ok: Flags, unit: int) -> Stamps:
    """Return numbers since 1970 as stamps; years that ns cannot hold are no times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    limit = 9 * 10**18 // unit
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    size = np.asarray(pc.cast(digits, pa.float64()))
    ok = ok & (np.abs(size) < limit)
    whole = np.asarray(pc.cast(pc.if_else(pa.array(ok), digits, "0"), pa.int64()))
    ns = whole * unit + fraction * unit // SECOND
    return Stamps(np.where(ok, ns, NO_TIME), np.ones(len(ok), bool) & ok, True)


def offsets(text: Any) -> tuple[Flags, Ints]:
    """Return which rows carry a UTC offset, and the offset in seconds."""
    import pyarrow.compute as pc

    words, places = np.unique(np.asarray(pc.utf8_upper(text)).astype(str), return_inverse=True)
    seconds = []
    for word in words:
        if word in ("", "Z", "UTC", "GMT"):
            seconds.append(0)
        else:
            size = int(word[1:3]) * 3600 + int(word[-2:]) * 60
            seconds.append(-size if word[0] == "-" else size)
    return (words != "")[places], np.asarray(seconds, np.int64)[places]


def infer(blocks: Iterable[Any]) -> list[Reading]:
    """Return the known readings that no row speaks against.

    One reading: the file is written in it. Several: the dates are ambiguous. None: nothing fits,
    or some rows fit one reading only and other rows another only. Reads no further than needed.
    """
    candidates = list(KNOWN)
    seen = False
    for text in (block.slice(i, SLICE) for block in blocks for i in range(0, len(block), SLICE)):
        fits = [parse(reading, text).ns != NO_TIME for reading in candidates]
        fits_any = np.logical_or.reduce(fits)
        seen |= bool(fits_any.any())
        candidates = [
            reading
            for reading, fit in zip(candidates, fits, strict=True)
            if not (fits_any & ~fit).any()
        ]
        if seen and len(candidates) < 2:
            break
    return candidates if seen else []
