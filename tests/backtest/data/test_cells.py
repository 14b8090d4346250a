import numpy as np
import pyarrow as pa
import pytest

from backtest.data.cells import flags, numbers


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1.5", ".", 1.5),
        (" 1.5 ", ".", 1.5),
        ("-37.63", ".", -37.63),
        ("1e-8", ".", 1e-8),
        ("+.5", ".", 0.5),
        ("", ".", np.nan),
        ("null", ".", np.nan),
        ("inf", ".", np.inf),
        ("1,5", ",", 1.5),
        ("1,5", ".", None),
        ("1.5", ",", None),
        ("1.234,5", ",", None),
        ("1,234.5", ".", None),
        ("12a", ".", None),
        ("0x10", ".", None),
    ],
)
def test_numbers(text: str, decimal: str, value: float | None) -> None:
    values, wrong = numbers(pa.array([text]), decimal)
    assert wrong[0] == (value is None)
    np.testing.assert_equal(values[0], np.nan if value is None else value)


def test_a_wrong_cell_leaves_its_neighbours_alone() -> None:
    values, wrong = numbers(pa.array(["1", "x", "3", ""]))
    np.testing.assert_equal(values, [1.0, np.nan, 3.0, np.nan])
    assert wrong.tolist() == [False, True, False, False]


def test_flags() -> None:
    values, wrong = flags(pa.array(["1", "true", "0", "", "No", "2"]))
    assert values.tolist() == [True, True, False, False, False, False]
    assert wrong.tolist() == [False, False, False, False, False, True]
