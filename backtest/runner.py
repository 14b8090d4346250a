"""How trials run: one function over many specifications, here or in other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Spec = TypeVar("Spec")
Result = TypeVar("Result")


class TrialRunner(Protocol):
    """Maps a pure, picklable function over specifications."""

    def imap(self, fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> Iterator[Result]:
        """Yield results in the order of the specifications; the first failure cancels the rest."""
        ...
