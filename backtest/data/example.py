"""The real bars inside the package `arch`: S&P 500 and Nasdaq Composite, daily, 1999 to 2018."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from backtest.config import CsvFormat
from backtest.errors import ConfigError, DataError

EXAMPLES = ("sp500", "nasdaq")
LAYOUT = CsvFormat(
    header=True,
    delimiter=",",
    decimal=".",
    columns={
        "time": "Date",
        "open": "Open",
        "high": "High",
        "low": "Low",
        "close": "Close",
        "volume": "Volume",
    },
    date_format="%m/%d/%Y",
    timezone="America/New_York",
    stamp="close",
)


def example(name: str) -> Path:
    """Return the file of an example, 5,031 rows; it is written in `LAYOUT`.

    Raises:
        ConfigError: no such example.
        DataError: the package `arch` is not installed.
    """
    if name not in EXAMPLES:
        raise ConfigError(f"source = 'example:{name}': choose one of {', '.join(EXAMPLES)}")
    package = find_spec("arch")
    if package is None or package.origin is None:
        raise DataError(f"example:{name} is shipped in the package arch; install arch")
    return Path(package.origin).parent / "data" / name / f"{name}.csv.gz"
