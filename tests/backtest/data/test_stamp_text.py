import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtest.data.raw import NO_TIME
from backtest.data.stamp_text import (
    COMPACT,
    DAY_FIRST,
    ISO,
    KNOWN,
    MONTH_FIRST,
    Reading,
    declared,
    infer,
    parse,
)
from backtest.errors import ConfigError


def shown(reading: Reading, *texts: str) -> list[str | None]:
    """Return the parsed times as ISO text, without a zone."""
    return [
        None if ns == NO_TIME else str(np.datetime64(int(ns), "ns")).rstrip("0").rstrip(".")
        for ns in parse(reading, pa.array(texts)).ns
    ]


@pytest.mark.parametrize(
    ("reading", "text", "time"),
    [
        (ISO, "2020-01-02", "2020-01-02"),
        (ISO, "2020-1-2 9:30", "2020-01-02T09:30"),
        (ISO, "2020/01/02 09:30:15.25", "2020-01-02T09:30:15.25"),
        (ISO, "2020-01-02T09:30:00Z", "2020-01-02T09:30"),
        (ISO, "2020-01-02 09:30:00-05:00", "2020-01-02T14:30"),
        (ISO, "2020-01-02 09:30 UTC", "2020-01-02T09:30"),
        (ISO, "2020-02-29", "2020-02-29"),
        (ISO, "2021-02-29", None),
        (ISO, "2020-13-01", None),
        (ISO, "2020-01-02 24:00", None),
        (ISO, "2020-01-02 09:60", None),
        (ISO, "1500-01-02", None),
        (COMPACT, "20170102", "2017-01-02"),
        (COMPACT, "20170102 020000", "2017-01-02T02:00"),
        (COMPACT, "19980102 00:00", "1998-01-02"),
        (COMPACT, "20170230", None),
        (DAY_FIRST, "01.02.2017 22:00:00.000", "2017-02-01T22:00"),
        (MONTH_FIRST, "1/4/1999", "1999-01-04"),
        (MONTH_FIRST, "1/4/1999 12:30 AM", "1999-01-04T00:30"),
        (MONTH_FIRST, "13/4/1999", None),
    ],
)
def test_known_readings(reading: Reading, text: str, time: str | None) -> None:
    ns = parse(reading, pa.array([text])).ns[0]
    assert ns == (NO_TIME if time is None else np.datetime64(time, "ns").astype(np.int64))


@pytest.mark.parametrize(
    ("date_format", "text", "time"),
    [
        ("%d-%b-%y", "11-Feb-09", "2009-02-11"),
        ("%d-%b-%y", "1-MAR-69", "1969-03-01"),
        ("%d-%b-%y", "29-Feb-09", None),
        ("%d-%b-%y", "1-Foo-09", None),
        ("%d.%m.%Y %H:%M:%S.%f", "01.02.2017 22:00:00.001", "2017-02-01T22:00:00.001"),
        ("%m/%d/%Y %I:%M %p", "12/31/2020 12:15 PM", "2020-12-31T12:15"),
        ("%m/%d/%Y %I:%M %p", "12/31/2020 13:15 PM", None),
        ("%Y%m%d %H%M%S", "20170102 020000", "2017-01-02T02:00"),
        ("%Y-%m-%dT%H:%M:%S%z", "2020-01-02T09:30:00+02:00", "2020-01-02T07:30"),
        ("epoch_s", "1364774820", "2013-04-01T00:07"),
        ("epoch_s", "1364774820.25", "2013-04-01T00:07:00.25"),
        ("epoch_s", "-5", "1969-12-31T23:59:55"),
        ("epoch_ms", "1364774820000", "2013-04-01T00:07"),
        ("epoch_ns", "1364774820000000001", "2013-04-01T00:07:00.000000001"),
        ("epoch_s", "9999999999999999999", None),
        ("epoch_s", "soon", None),
    ],
)
def test_declared_formats(date_format: str, text: str, time: str | None) -> None:
    stamps = parse(declared(date_format, "csv.date_format"), pa.array([text]))
    expected = NO_TIME if time is None else np.datetime64(time, "ns").astype(np.int64)
    assert stamps.ns[0] == expected


def test_zones_and_times_of_day_are_told_apart() -> None:
    dates = parse(ISO, pa.array(["2020-01-02", "2020-01-03"]))
    assert not dates.timed and not dates.zoned.any()
    mixed = parse(ISO, pa.array(["2020-01-02 10:00", "2020-01-02 10:00Z", "x", ""]))
    assert mixed.timed
    assert mixed.zoned.tolist() == [False, True, False, False]
    assert (mixed.ns == NO_TIME).tolist() == [False, False, True, True]
    assert parse(declared("epoch_ms", "k"), pa.array(["0"])).zoned.all()  # epochs are UTC


@pytest.mark.parametrize(
    ("date_format", "message"),
    [("%j", "%j is not supported"), ("%Y-%Y-%d", "given twice"), ("%H:%M", "needs year")],
)
def test_formats_that_cannot_work(date_format: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"csv.date_format = .*{message}"):
        declared(date_format, "csv.date_format")


@given(st.datetimes(), st.sampled_from(["%d/%m/%Y %H:%M:%S.%f", "%b %d %Y %I.%M.%S %p"]))
def test_declared_formats_agree_with_python(time: object, date_format: str) -> None:
    from datetime import datetime

    assert isinstance(time, datetime)
    text = time.strftime(date_format) if time.year > 1700 else "01/02/2000 00:00:00.0"
    if not 1700 < time.year < 2262:
        return
    ns = parse(declared(date_format, "k"), pa.array([text])).ns[0]
    expected = datetime.strptime(text, date_format)
    assert ns == np.datetime64(expected, "us").astype("datetime64[ns]").astype(np.int64)


def test_one_row_settles_day_against_month() -> None:
    both = pa.array(["1/2/2020", "3/4/2020"])
    assert infer([both]) == [DAY_FIRST, MONTH_FIRST]
    assert infer([both, pa.array(["13/4/2020"])]) == [DAY_FIRST]
    assert infer([both, pa.array(["4/13/2020"])]) == [MONTH_FIRST]
    assert infer([both, pa.array(["4/13/2020", "13/4/2020"])]) == []
    assert infer([pa.array(["", "11-Feb-09"])]) == []


@pytest.mark.parametrize(
    "text",
    [
        *("2020-01-02", "20200102", "20200102 10:00", "1577934000", "1577934000000"),
        *("1577934000000000", "1577934000000000000"),
    ],
)
def test_other_forms_are_never_ambiguous(text: str) -> None:
    assert len(infer([pa.array([text])])) == 1


def test_readings_are_found_without_reading_on() -> None:
    def blocks() -> object:
        yield pa.array(["2020-01-02"])
        raise AssertionError("one row was enough")

    assert infer(blocks()) == [ISO]  # type: ignore[arg-type]
    assert len(KNOWN) == 8
