"""Columns of an experience: NumPy arrays on the host, or tensors where the learner is.

Both hold the same numbers under the same shapes and dtypes; what reads them asks for the kind it
works on. Torch is loaded only where a tensor is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Column = Any  # np.ndarray or torch.Tensor


def host(column: Column) -> npt.NDArray[Any]:
    """Return the array itself, or a tensor's numbers on the host."""
    if isinstance(column, np.ndarray):
        return column
    array: npt.NDArray[Any] = column.cpu().numpy()
    return array


def tensor(column: Column, device: torch.device | str | None = None) -> torch.Tensor:
    """Return the column as a tensor, without a copy where its memory can be shared.

    Args:
        column: never written to by what asks.
        device: where it is needed; None: where it is.
    """
    import torch

    if isinstance(column, np.ndarray):
        # torch shares writable memory only
        column = torch.from_numpy(column if column.flags.writeable else column.copy())
    found: torch.Tensor = column
    return found if device is None else found.to(device)
