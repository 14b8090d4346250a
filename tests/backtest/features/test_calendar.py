import numpy as np
import pytest

from backtest.features.calendar import day_of_week, day_of_year, time_of_day


def ns(*texts):
    return np.array(texts, dtype="datetime64[ns]").astype(np.int64)


def test_time_of_day():
    sine, cosine = time_of_day(ns("2020-04-20T06:00", "2020-04-20T12:00", "1969-12-31T18:00"))
    assert sine == pytest.approx([1, 0, -1], abs=1e-15)
    assert cosine == pytest.approx([0, -1, 0], abs=1e-15)


def test_day_of_week_starts_on_monday():
    sine, cosine = day_of_week(ns("2024-01-01T23:59:59", "2024-01-03", "1969-12-28"))
    angle = 2 * np.pi * np.array([0, 2, 6]) / 7
    assert sine == pytest.approx(np.sin(angle))
    assert cosine == pytest.approx(np.cos(angle))


def test_day_of_year_starts_on_new_year():
    sine, cosine = day_of_year(ns("2023-01-01T10:00", "2024-12-31", "1969-02-01"))
    angle = 2 * np.pi * np.array([0, 365, 31]) / 365.25
    assert sine == pytest.approx(np.sin(angle))
    assert cosine == pytest.approx(np.cos(angle))
