"""Streams of Arrow blocks to `RawBars`: the part that all file formats share.

Only NumPy columns are held; a block is dropped once it is converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backtest.config import CsvFormat
from backtest.data import cells, stamp_text
from backtest.data.bars import Flags, Ints
from backtest.data.columns import Columns
from backtest.data.issues import Findings
from backtest.data.raw import NO_TIME, PRICES, RawBars, Source, Unreadable
from backtest.data.stamp_text import DAY_FIRST, ISO, MONTH_FIRST, Reading, Stamps
from backtest.errors import DataError

MAX_UNREADABLE = 10_000  # cells; more is not damage but a wrong declaration
MAX_SYMBOLS = 1_000


def gather(source: Source, columns: Columns, layout: CsvFormat, findings: Findings) -> RawBars:
    """Read all blocks of a source.

    Raises:
        DataError: times that no single reading fits, several instruments in one file, or more
            damage than a declared policy could mean.
    """
    reading = choose_reading(source, columns, layout, findings)
    gathered = Gathered(columns, reading, layout.decimal, findings)
    for block in source.blocks(columns.wanted):
        gathered.add(named(block, columns))
    gathered.check_symbols()
    findings.refuse()
    return gathered.finish(source)


def named(block: Mapping[int, Any], columns: Columns) -> dict[str, Any]:
    """Return a block's arrays under our names, times of text trimmed and joined with their date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrays = {ours: block[place] for ours, place in columns.place.items()}
    if "date" in arrays:
        halves = [arrays.pop(name).cast(pa.string()).fill_null("") for name in ("date", "time")]
        arrays["time"] = pc.binary_join_element_wise(*map(pc.utf8_trim_whitespace, halves), " ")
    if is_text(arrays["time"]):
        arrays["time"] = pc.utf8_trim_whitespace(arrays["time"].fill_null(""))
    return arrays


def choose_reading(
    source: Source, columns: Columns, layout: CsvFormat, findings: Findings
) -> Reading:
    """Return how the time column's text or numbers are written: declared, or the only reading."""
    key = findings.key("csv.date_format")
    if layout.date_format is not None:
        return stamp_text.declared(layout.date_format, key)
    places = sorted({columns.place[ours] for ours in ("date", "time") if ours in columns.place})
    only_time = Columns({o: p for o, p in columns.place.items() if p in places}, chooses=False)
    first, place = "", 0  # the first time that is not empty, and where it stands

    def times() -> Iterator[Any]:
        nonlocal first, place
        for block in source.blocks(places):
            times = as_text(named(block, only_time)["time"])
            if times is None:
                return
            if not first:
                words = times.to_pylist()
                inner = next((i for i, word in enumerate(words) if word), len(words))
                place += inner
                first = words[inner] if inner < len(words) else ""
            yield times

    readings = stamp_text.infer(times())
    if not first:  # typed time stamps, or no time at all
        return ISO
    where = f"{findings.source}: row {source.rows(np.array([place]))[0]}"
    if not readings:
        raise DataError(
            f"{where}: times such as {first!r} are written in no form known without a "
            f"declaration, or in several; set {key}"
        )
    if {DAY_FIRST, MONTH_FIRST} <= set(readings):
        raise DataError(
            f"{where}: {first!r} may be day/month or month/day, and so may every other date; "
            f'set {key}, such as "%d/%m/%Y" or "%m/%d/%Y"'
        )
    if readings[0] is not ISO:
        findings.assume(
            "assumed_date_format",
            f"times such as {first!r} are read as {readings[0].name}, the only reading that fits",
        )
    return readings[0]


@dataclass
class Gathered:
    """Converted columns of the blocks so far."""

    columns: Columns
    reading: Reading
    decimal: str
    findings: Findings
    parts: dict[str, list[Any]] = field(default_factory=dict)
    unreadable: list[tuple[int, str]] = field(default_factory=list)  # position in the stream
    symbols: set[str] = field(default_factory=set)
    position: int = 0
    blank: int = 0
    timed: bool = False

    def add(self, arrays: dict[str, Any]) -> None:
        """Convert one block."""
        where = np.arange(self.position, self.position + len(arrays["time"]))
        self.position += len(where)
        keep = self.choose(arrays)
        if not keep.all():
            import pyarrow as pa

            mask = pa.array(keep)
            arrays = {ours: array.filter(mask) for ours, array in arrays.items()}
            where = where[keep]
        stamps = self.times(arrays["time"], where)
        self.timed |= stamps.timed
        self.put(stamp=stamps.ns, zoned=stamps.zoned, where=where)
        for ours in (*PRICES, "volume"):
            if ours in arrays:
                self.put(**{ours: self.numbers(ours, arrays[ours], where)})
        if "roll" in arrays:
            self.put(roll=self.rolls(arrays["roll"], where))
        if len(self.unreadable) > MAX_UNREADABLE:
            position, what = self.unreadable[0]
            raise DataError(
                f"{self.findings.source}: more than {MAX_UNREADABLE:,} cells cannot be read, the "
                f"first is data row {position + 1}: {what}; check {self.findings.key('csv')}"
            )

    def put(self, **arrays: Any) -> None:
        """Append one part to each named column."""
        for name, array in arrays.items():
            self.parts.setdefault(name, []).append(array)

    def choose(self, arrays: dict[str, Any]) -> Flags:
        """Return which rows of a block belong to this instrument and hold anything."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keep = np.ones(len(arrays["time"]), bool)
        if "symbol" in arrays:
            symbol = pc.fill_null(arrays.pop("symbol").cast(pa.string()), "")
            self.symbols |= set(pc.unique(symbol).to_pylist())
            if self.columns.chooses:
                keep = np.asarray(pc.equal(symbol, self.findings.instrument))
        if is_text(arrays["time"]):
            empty = np.asarray(pc.equal(arrays["time"], ""))
            if empty.any():
                for array in arrays.values():
                    if is_text(array):
                        text = pc.utf8_trim_whitespace(pc.fill_null(array, ""))
                        empty = empty & np.asarray(pc.equal(text, ""))
                    else:
                        empty = empty & np.asarray(pc.is_null(array))
                self.blank += int((empty & keep).sum())
                keep &= ~empty
        return keep

    def check_symbols(self) -> None:
        """Refuse several instruments in one file unless one of them is chosen."""
        findings = self.findings
        shown = ", ".join(sorted(self.symbols)[:5]) + (", ..." if len(self.symbols) > 5 else "")
        if self.columns.chooses and findings.instrument not in self.symbols:
            findings.problem(
                f"no row has the symbol {findings.instrument!r}, only {shown}; name the instrument "
                f"like its symbol"
            )
        elif not self.columns.chooses and len(self.symbols - {""}) > 1:
            findings.problem(
                f"{len(self.symbols)} instruments or contracts are stacked in one file ({shown}); "
                f"to choose one, name the instrument like its symbol and set "
                f"{findings.key('csv.columns.symbol')} to that column's header"
            )

    def times(self, array: Any, where: Ints) -> Stamps:
        """Return the stamps of one block, whatever type they have in the file."""
        import pyarrow as pa

        text = as_text(array)
        if text is not None:
            stamps = stamp_text.parse(self.reading, text)
            self.mark(
                [
                    (int(where[i]), f"{text[int(i)].as_py()!r} is not a time ({self.reading.name})")
                    for i in np.flatnonzero(stamps.ns == NO_TIME)
                    if text[int(i)].as_py()
                ]
            )
            return stamps
        zoned = np.full(len(array), pa.types.is_timestamp(array.type) and array.type.tz is not None)
        try:
            ns = array.cast(pa.timestamp("ns", getattr(array.type, "tz", None))).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.findings.source}: the time column ({array.type}) does not hold times that "
                f"fit nanoseconds since 1970: {error}"
            ) from None
        stamps_ns = np.asarray(ns.fill_null(NO_TIME))
        return Stamps(stamps_ns, zoned, not pa.types.is_date(array.type))

    def numbers(self, ours: str, array: Any, where: Ints) -> Any:
        """Return float64[n] of one block of a price or volume column."""
        import pyarrow as pa

        if is_text(array):
            text = array.fill_null("")
            values, wrong = cells.numbers(text, self.decimal)
            self.mark(
                [
                    (int(where[i]), f"{ours} {text[int(i)].as_py()!r} is not a number")
                    for i in np.flatnonzero(wrong)
                ]
            )
            return values
        try:
            return np.asarray(array.cast(pa.float64(), safe=False).fill_null(np.nan))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"{self.findings.source}: column {ours} holds {array.type}, not numbers"
            ) from None

    def rolls(self, array: Any, where: Ints) -> Flags:
        """Return bool[n] of one block of the roll column."""
        import pyarrow as pa

        text = array.cast(pa.string()).fill_null("")
        values, wrong = cells.flags(text)
        self.mark(
            [
                (int(where[i]), f"roll {text[int(i)].as_py()!r} is neither 0 nor 1")
                for i in np.flatnonzero(wrong)
            ]
        )
        return values

    def mark(self, damage: list[tuple[int, str]]) -> None:
        """Remember cells that could not be read."""
        self.unreadable += damage

    def finish(self, source: Source) -> RawBars:
        """Join the blocks, freeing each column's parts as it goes."""
        if not self.parts.get("where") or not sum(map(len, self.parts["where"])):
            raise DataError(f"{self.findings.source}: the file holds no rows; export it again")
        if self.blank:
            self.findings.note(
                "blank_row", [], f"{self.blank:,} rows without any content are skipped"
            )
        joined = {name: np.concatenate(self.parts.pop(name)) for name in list(self.parts)}
        row = source.rows(joined["where"])
        damage = self.unreadable
        places = source.rows(np.array([position for position, _ in damage], np.int64))
        self.check_zones(joined["stamp"], joined["zoned"], row)
        return RawBars(
            **{name: joined[name] for name in ("stamp", *PRICES)},
            volume=joined.get("volume"),
            roll=joined.get("roll", np.zeros(len(row), bool)),
            row=row,
            unreadable=(
                *source.ragged,
                *(Unreadable(int(r), what) for r, (_, what) in zip(places, damage, strict=True)),
            ),
            dated=not self.timed,
            zoned=bool(joined["zoned"].any()),
            closes=source.closes,
        )

    def check_zones(self, stamp: Ints, zoned: Flags, row: Ints) -> None:
        """Refuse a file in which only some times carry a UTC offset."""
        times = stamp != NO_TIME
        plain = times & ~zoned
        if zoned.any() and plain.any():
            self.findings.problem(
                f"row {row[np.argmax(plain)]}: the time has no UTC offset, row "
                f"{row[np.argmax(zoned)]} has one; write all of them with an offset"
            )


def is_text(array: Any) -> bool:
    """Return whether an Arrow array holds text."""
    import pyarrow as pa

    return bool(pa.types.is_string(array.type))


def as_text(array: Any) -> Any:
    """Return times of text or whole numbers as trimmed text; None for typed times."""
    import pyarrow as pa

    if is_text(array):
        return array
    if pa.types.is_integer(array.type):
        return array.cast(pa.string()).fill_null("")
    return None
