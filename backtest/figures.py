"""Figures with their intervals, and how tables for people show them."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A metric with its interval; None where the store says NULL."""

    value: float | None
    low: float | None = None
    high: float | None = None


UNDEFINED = Figure(None)


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, such as 1 fold or 2,012 sessions."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(figure: Figure, digits: int = 1) -> str:
    """Return a fraction as percent, without bounds."""
    return "" if figure.value is None else f"{figure.value:.{digits}%}"


def number(figure: Figure) -> str:
    """Return a count, which over seeds may be a mean."""
    return "" if figure.value is None else f"{figure.value:,.1f}".removesuffix(".0")


def plain(figure: Figure, *, bounds: bool = False) -> str:
    """Return a ratio or a probability, with its interval where there is one."""
    if figure.value is None:
        return ""
    # a negative zero is a zero to people
    value, low, high = (None if v is None else f"{round(v, 2) + 0.0:.2f}" for v in figure)
    return f"{value} [{low}, {high}]" if bounds and low and high else str(value)


def signed(figure: Figure, form: str) -> str:
    """Return a difference with its sign, and its interval where there is one.

    Args:
        figure: the difference.
        form: of a number, such as ".2f" or ",.0f".
    """
    if figure.value is None:
        return ""
    # adding 0.0 to what is rounded makes a negative zero a zero
    digits = int(form.rstrip("f").rpartition(".")[2])
    value, low, high = (None if v is None else f"{round(v, digits) + 0.0:+{form}}" for v in figure)
    return f"{value} [{low}, {high}]" if low and high else str(value)
