"""Banks as safetensors files, valid only for the weights that they were collected on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from backtest.agent import tensor_file
from backtest.agent.bank.state import Array, BankState
from backtest.agent_sections import SkillBank
from backtest.errors import StoreError

KIND = "skillwalk.bank"
VERSION = 1


def checked(state: BankState, arrays: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Return copies of `arrays` if they fit a state; nothing is changed.

    Raises:
        StoreError: a missing or unknown array, another shape, dtype, or a value not finite.
    """
    wanted = state.arrays()
    if arrays.keys() != wanted.keys():
        names = ", ".join(sorted(arrays.keys() ^ wanted.keys()))
        raise StoreError(f"{where}: arrays missing or unknown: {names}; collect the bank again")
    for name, array in arrays.items():
        want = wanted[name]
        if array.shape != want.shape or array.dtype != want.dtype:
            raise StoreError(
                f"{where}: {name} is {array.dtype}{list(array.shape)}, this bank has "
                f"{want.dtype}{list(want.shape)}; use a bank of the same slots and dimensions"
            )
        if array.dtype.kind == "f" and not bool((abs(array) < float("inf")).all()):
            raise StoreError(f"{where}: {name} is not finite; collect the bank again")
    return {name: array.copy() for name, array in arrays.items()}


def save(
    path: Path, state: BankState, section: SkillBank, dims: Mapping[str, int], weight_hash: str
) -> None:
    """Write a bank atomically.

    Args:
        path: the file; its folder must exist.
        state: of the bank.
        section: its parameters.
        dims: slots, key_dim, dim.
        weight_hash: of the network whose hidden states it corrects.
    """
    metadata = {
        "dims": dict(dims),
        "parameters": section.model_dump(mode="json"),
        "weight_hash": weight_hash,
    }
    tensor_file.write(path, KIND, VERSION, state.arrays(), metadata)


def load(path: Path, weight_hash: str) -> tuple[dict[str, Array], SkillBank, dict[str, int]]:
    """Return arrays, parameters and dims of a file of `save`.

    Raises:
        StoreError: missing, truncated, damaged, of another version or of other weights.
    """
    arrays, metadata = tensor_file.read(path, KIND, VERSION)
    found: Any = metadata["weight_hash"]
    if found != weight_hash:
        raise StoreError(
            f"{path}: collected on weights {found[:12]}, not {weight_hash[:12]}; a bank is valid "
            "for its own weights only, collect it again"
        )
    try:
        section = SkillBank.model_validate(metadata["parameters"])
    except ValidationError as error:
        raise StoreError(
            f"{path}: parameters of another release ({error}); collect again"
        ) from None
    return arrays, section, dict(metadata["dims"])
