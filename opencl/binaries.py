"""Compiled programs on disk, so that a second process does not compile again.

A file is the SHA-256 of the binary followed by the binary: drivers crash on a damaged one instead
of refusing it, so it is checked here. No lock: writers rename whole files into place.
"""

from __future__ import annotations

import os
import platform
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

DIGEST = 32  # bytes
KEEP = 256  # files; the oldest go


def directory() -> Path:
    """Return the folder of binaries in the user's cache; it may not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("skillwalk", appauthor=False) / "kernels"


@cache
def processor() -> str:
    """Return this processor's model and instruction sets.

    A CPU runtime compiles for them but names its device by the brand alone, and a home directory
    may be shared by machines of different generations.
    """
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return f"{platform.machine()} {platform.processor()}"


def load(key: str) -> bytes | None:
    """Return the binary of a key, or None when there is none or its file is damaged."""
    try:
        content = (directory() / key).read_bytes()
    except OSError:
        return None
    digest, binary = content[:DIGEST], content[DIGEST:]
    return binary if binary and sha256(binary).digest() == digest else None


def save(key: str, binary: bytes) -> None:
    """Keep a binary; a folder that cannot be written costs a later compilation, nothing else."""
    folder = directory()
    if not folder.is_absolute():  # a user without a home: "~" would become a folder here
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sha256(binary).digest() + binary)
            os.replace(name, folder / key)
        except OSError:
            os.unlink(name)
            raise
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in files[:-KEEP]:
            path.unlink(missing_ok=True)
