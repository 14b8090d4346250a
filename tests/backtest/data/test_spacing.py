import numpy as np
import pytest

from backtest.data.spacing import Spacing, declared, derived, duration
from backtest.data.stamp_text import DAY, SECOND
from backtest.errors import ConfigError, DataError

MINUTE = 60 * SECOND
ROWS = np.arange(2, 1000)


def test_declared() -> None:
    assert declared("15min", "bar") == Spacing(15, "min")
    assert declared("1mo", "bar").per_year == 12
    for text in ("1 min", "0h", "1m", "day", "24h", "90000s", ""):
        with pytest.raises(ConfigError, match="bar = "):
            declared(text, "bar")


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ([1, 1, 1, 5, 1], "1min"),
        ([15] * 4, "15min"),
        ([60, 60, 1080, 60], "1h"),
        ([0.5] * 3, "30s"),
        ([1440, 1440, 1440, 3 * 1440], "1d"),
        ([1440, 1380, 1440, 1500, 1440], "1d"),  # clock changes move daily stamps by an hour
        ([7 * 1440, 7 * 1440, 6 * 1440, 8 * 1440], "1w"),
    ],
)
def test_derived_from_the_usual_distance(distances: list[float], expected: str) -> None:
    stamp = np.concatenate([[0], np.cumsum(np.array(distances) * MINUTE)]).astype(np.int64)
    assert str(derived(stamp, ROWS, "bar")) == expected


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([], "spacing of 1 bars is unknown; declare bar"),
        ([1, 2, 3, 4], "that of 1 of 4 bars; declare bar"),
        ([31 * 1440, 28 * 1440, 31 * 1440, 30 * 1440], "most frequent distance, 31 d"),
        ([5, 5, 5, 1, 5], "row 6: closer to the bar before it"),
    ],
)
def test_irregular_bars_are_never_given_a_spacing(distances: list[int], message: str) -> None:
    stamp = np.concatenate([[0], np.cumsum(np.array(distances, int) * MINUTE)]).astype(np.int64)
    with pytest.raises(DataError, match=message):
        derived(stamp, ROWS, "bar")


def test_after_moves_dates() -> None:
    date = np.array(["2024-01-31", "2023-01-01"], "datetime64[D]").astype(np.int64)
    later = Spacing(1, "mo").after(date).astype("datetime64[D]").astype(str)
    assert later.tolist() == ["2024-02-29", "2023-02-01"]
    assert (Spacing(2, "w").after(date) - date).tolist() == [14, 14]
    assert (Spacing(1, "h").after(date) == date).all()


def test_durations() -> None:
    assert duration(MINUTE) == "00:01:00"
    assert duration(2 * DAY + 3600 * SECOND) == "2 d 01:00:00"
