"""Files of other people, with the defects their catalogue lists."""

from pathlib import Path

import numpy as np
import pytest

from backtest.data.example import example
from backtest.errors import ConfigError, DataError
from tests.backtest.data.conftest import Ingest, kinds

PLACES = {"time": 0, "open": 1, "high": 2, "low": 3, "close": 4, "volume": 5}


def first_close(result: object) -> str:
    return str(np.datetime64(int(result.bars.time[0]), "ns"))[:16]  # type: ignore[attr-defined]


def test_the_examples_inside_arch(take_in: Ingest) -> None:
    result = take_in("example:sp500", calendar="XNYS")
    assert len(result.bars) == 5031
    assert kinds(result) == {}
    assert first_close(result) == "1999-01-04T21:00"
    assert result.bars.close[0] == 1228.099976
    nasdaq = take_in("example:nasdaq", calendar="XNYS")
    assert kinds(nasdaq) == {"zero_volume": (4116, 2, "kept")}
    with pytest.raises(ConfigError, match=r"example:dax.*sp500, nasdaq"):
        example("dax")


def test_the_example_read_without_declarations_is_the_same(
    shared_data: Path, take_in: Ingest
) -> None:
    plain = take_in(shared_data / "arch/sp500.csv.gz", calendar="XNYS")
    declared = take_in("example:sp500", calendar="XNYS")
    assert plain.bars.content_hash == declared.bars.content_hash
    assert {"assumed_date_format", "unadjusted_prices"} <= {i.kind for i in plain.issues}


def test_a_deliberately_damaged_file(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "skender/bad.csv"
    with pytest.raises(DataError) as error:
        take_in(path, calendar="XNYS")
    message = str(error.value)
    for sentence in (
        "5 problems",
        "row 202: the time is empty (50 rows: 202-251)",
        "row 451: open is empty or NaN",
        "(51 rows: 451-501)",
        "row 400: all prices are 0 (51 rows: 400-450)",
        "row 252: low 1.284e-08 is above close 1e-08 (12 rows: 252-257, 356, 358-359, 361-363)",
        "row 360: volume -6.48742e+07 is negative",
    ):
        assert sentence in message
    policies = dict(not_finite="drop", all_zero="drop", ohlc_inconsistent="drop")
    result = take_in(path, calendar="XNYS", **policies)
    assert len(result.bars) == 502 - 50 - 51 - 51 - 13
    assert (result.bars.high >= result.bars.low).all()


def test_descending_order(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "skender/longest.csv"
    with pytest.raises(DataError, match="row 3: rows are in descending order"):
        take_in(path, calendar="XNYS")
    result = take_in(path, calendar="XNYS", unsorted="keep")
    assert len(result.bars) == 15_821
    assert result.bars.time[0] < result.bars.time[-1]


def test_oil_below_zero(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "yahoo_cl/CL=F.csv"
    with pytest.raises(DataError, match=r"\(7 rows: 159, 200, 266, 328, 374, \.\.\.\)"):
        take_in(path, name="CL=F", calendar="CMES")
    result = take_in(path, name="CL=F", calendar="CMES", ohlc_inconsistent="keep")
    assert len(result.bars) == 6427
    assert kinds(result)["negative_price"] == (4933, 2, "kept")
    assert kinds(result)["zero_volume"][1] == 12
    session = result.bars.session == np.datetime64("2020-04-20", "D").astype(int)
    np.testing.assert_allclose(result.bars.close[session], -37.63, atol=1e-6)


def test_open_close_high_low_without_a_header(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "bitfinex/BTCUSD_1m_2013_merged.csv.gz"
    with pytest.raises(DataError, match="row 1 holds data, not a header"):
        take_in(path)
    with pytest.raises(DataError, match=r"row 1: low 93\.3 is above open 93\.25"):
        take_in(path, header=False, columns=PLACES, date_format="epoch_ms")
    right = {**PLACES, "close": 2, "high": 3, "low": 4}
    result = take_in(path, header=False, columns=right, date_format="epoch_ms", jump="drop")
    assert kinds(result)["gap"] == (3, 49_884, "kept")
    assert len(result.bars) == 148_055 - 5  # five bars of bad ticks, among them one at 1.06
    assert result.bars.close.min() > 15


def test_day_first_hours(shared_data: Path, take_in: Ingest) -> None:
    result = take_in(shared_data / "gym_anytrading/FOREX_EURUSD_1H_ASK.csv")
    assert len(result.bars) == 6225
    assert first_close(result) == "2017-01-01T23:00"  # opened 01.01.2017 22:00
    assert kinds(result)["gap"][1] == 52  # weekends of a year


def test_closes_of_a_future_follow_its_calendar(shared_data: Path, take_in: Ingest) -> None:
    result = take_in(
        shared_data / "nautilus/6EH4.XCME_1min_bars_20240101_20240131.csv.gz",
        calendar="CMES",
        stamp="close",
    )
    assert len(result.bars) == 29_996
    assert (np.diff(result.bars.session) >= 0).all()
    assert len(np.unique(result.bars.session)) == 23
    clean = take_in(shared_data / "nautilus/btc-perp-20211231-20220201_1m.csv")
    assert len(clean.bars) == 45_031 and kinds(clean) == {}


def test_an_unnamed_time_column(shared_data: Path, take_in: Ingest) -> None:
    assert len(take_in(shared_data / "backtesting_py/EURUSD.csv").bars) == 5000
    with pytest.raises(DataError, match=r"spacing is unknown.*declare instruments\.X\.bar"):
        take_in(shared_data / "backtesting_py/BTCUSD.csv")
    months = take_in(shared_data / "backtesting_py/BTCUSD.csv", bar="1mo")
    assert len(months.bars) == 156 and str(months.spacing) == "1mo"


def test_stacked_tickers_and_contracts(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "bokeh_sampledata/stocks.csv.gz"
    with pytest.raises(DataError, match=r"5 instruments or contracts .*AAPL, FB, GOOG, IBM, MSFT"):
        take_in(path)
    chosen = take_in(path, name="AAPL", calendar="XNYS", columns={"symbol": "Ticker"})
    assert len(chosen.bars) == 3270
    contracts = shared_data / "lean/ES_minute_trade_all_contracts.csv"
    with pytest.raises(DataError, match="8 instruments or contracts"):
        take_in(contracts)
    future = take_in(contracts, "ES201312", calendar="CMES", columns={"symbol": "contract"})
    assert len(future.bars) == 16_673


def test_semicolons_in_new_york_time(shared_data: Path, take_in: Ingest) -> None:
    path = shared_data / "histdata_btgym/DAT_ASCII_EURUSD_M1_201703_1_10.csv"
    with pytest.raises(DataError, match=r'csv\.delimiter = ";"'):
        take_in(path)
    result = take_in(
        path,
        delimiter=";",
        header=False,
        columns=PLACES,
        date_format="%Y%m%d %H%M%S",
        timezone="America/New_York",
    )
    assert len(result.bars) == 11_092 and not result.bars.volume_known
    assert first_close(result) == "2017-03-01T05:01"  # opened at midnight in New York

    whole = take_in(
        shared_data / "histdata_btgym/EURUSD_M1_2017H1.parquet", timezone="America/New_York"
    )
    same = np.isin(whole.bars.time, result.bars.time)
    assert same.sum() == 11_092
    np.testing.assert_array_equal(whole.bars.close[same], result.bars.close)


def test_unadjusted_splits(shared_data: Path, take_in: Ingest) -> None:
    path, csv = shared_data / "lean/equity_usa_daily/aapl.csv", dict(header=False, columns=PLACES)
    with pytest.raises(DataError, match=r"close moves -45\.0% .*\(5 rows: .*adjust prices"):
        take_in(path, calendar="XNYS", adjustable=True, **csv)
    kept = take_in(path, calendar="XNYS", **csv)
    sessions = kept.bars.session.astype("datetime64[D]")
    moves = kept.bars.close[1:] / kept.bars.close[:-1] - 1
    assert sessions[1:][np.abs(moves) > 0.4].astype(str).tolist() == [
        # three splits and the real fall of September 2000, then the split of 2020
        *("2000-06-21", "2000-09-29", "2005-02-28", "2014-06-09", "2020-08-31"),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cusum_openquant/dollar_bar_sample.csv", "the spacing is unknown"),
        ("bukosabino_ta/cs-adx.csv", "no column for open"),
        ("freqtrade/XRP_ETH-1m.feather", r"unknown format \.feather"),
        ("databento_dbn/test_data.ohlcv-1m.dbn", r"unknown format \.dbn"),
        ("skender/Adx.Calc.xlsx", r"unknown format \.xlsx"),
        ("lean/equity_usa_hour/spy.zip", r"unknown format \.zip"),
    ],
)
def test_files_that_are_refused(
    shared_data: Path, take_in: Ingest, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        take_in(shared_data / name)
