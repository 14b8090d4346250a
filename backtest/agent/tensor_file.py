"""Named arrays and JSON metadata in one safetensors file, written whole or not at all.

The metadata carries the format's name and version and a hash of the contents, so a damaged file or
one of another version is refused before anything is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backtest.errors import StoreError

Arrays = dict[str, npt.NDArray[Any]]


def content_hash(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 (hex) over names, dtypes, shapes and bytes, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def write(
    path: Path,
    kind: str,
    version: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    metadata: Mapping[str, Any],
) -> None:
    """Write arrays and metadata to a temporary name beside `path`, then rename.

    Args:
        path: the file to create or replace; its folder must exist.
        kind: name of the format, such as "skillwalk.policy".
        version: of the format.
        arrays: by name.
        metadata: anything JSON can hold; floats survive exactly.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    header = {
        "kind": kind,
        "version": str(version),
        "content_hash": content_hash(arrays),
        "metadata": json.dumps(metadata, sort_keys=True, allow_nan=False),
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(save(dict(arrays), header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path, kind: str, version: int) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays and metadata of a file that `write` made.

    Raises:
        StoreError: missing, truncated, damaged, of another kind or version.
    """
    from safetensors import SafetensorError, safe_open

    cure = "delete it and run again to make it anew"
    if not path.is_file():
        raise StoreError(f"{path}: no such file; run the training that writes it")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            names = file.keys()
            arrays: Arrays = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise StoreError(f"{path}: truncated or not a safetensors file ({error}); {cure}") from None
    if header.get("kind") != kind:
        raise StoreError(f"{path}: holds {header.get('kind', 'foreign tensors')}, not {kind}")
    if header.get("version") != str(version):
        raise StoreError(
            f"{path}: {kind} version {header.get('version')}, this release reads {version}; {cure}"
        )
    if header.get("content_hash") != content_hash(arrays):
        raise StoreError(f"{path}: contents do not match their hash, the file is damaged; {cure}")
    metadata: dict[str, Any] = json.loads(header["metadata"])
    return arrays, metadata
