"""Finds OpenCL runtimes that the loader would miss, without hiding those it finds itself.

The loader reads one directory of `.icd` files, each naming a driver library. A runtime that pip
installed is in none, and the file its wheel brings holds a wrong path. While the loader reads, a
private directory stands in: the system's entries plus the missing ones.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A user who sets one of these has said what to load; it is left as it is.
USER_VARIABLES = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES")
SYSTEM_DIRECTORY = "/etc/OpenCL/vendors"  # unless OPENCL_VENDOR_PATH names another

INTEL_PACKAGE = "intel-opencl-rt"
INTEL_LIBRARY = "libintelocl.so"
# Containers often have the driver's library without its entry; the loader skips it when absent.
NVIDIA_LIBRARY = "libnvidia-opencl.so.1"


def user_choice() -> str | None:
    """Return `NAME=value` of the variable by which the user chose the runtimes, if any."""
    for name in USER_VARIABLES:
        if os.environ.get(name):
            return f"{name}={os.environ[name]}"
    return None


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable, and put back what was there."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def complete_list() -> Iterator[None]:
    """Make the loader see the completed list; it must first be asked for platforms inside.

    The directory is this process's own and gone afterwards (the loader has its libraries open by
    then), and the environment is as before: children decide for themselves.
    """
    entries = {} if user_choice() else _entries()
    if not entries:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="skillwalk-icd-") as directory:
        for name, library in entries.items():
            (Path(directory) / name).write_text(library + "\n", "utf-8", "surrogateescape")
        with environment("OCL_ICD_VENDORS", directory):
            yield


def _entries() -> dict[str, str]:
    """Return library by file name: the system's entries and those it lacks."""
    system = _system_entries()
    entries = dict(system)
    present = {Path(library).name for library in system.values() if _may_load(library)}
    # Two copies of one runtime in a process would share symbols: the system's stays alone.
    intel = intel_library()
    if intel is not None and not any(name.startswith(INTEL_LIBRARY) for name in present):
        entries["skillwalk-intel.icd"] = str(intel)
    if not any("nvidia-opencl" in name for name in present):
        entries["skillwalk-nvidia.icd"] = NVIDIA_LIBRARY
    return entries


def _system_entries() -> dict[str, str]:
    directory = Path(os.environ.get("OPENCL_VENDOR_PATH") or SYSTEM_DIRECTORY)
    entries = {}
    for path in sorted(directory.glob("*.icd")):
        try:
            text = path.read_text("utf-8", "surrogateescape").strip()
        except OSError:  # unreadable for this user: the loader would skip it too
            continue
        if text:
            entries[path.name] = text.splitlines()[0]
    return entries


def _may_load(library: str) -> bool:
    return "/" not in library or Path(library).exists()


def intel_library() -> Path | None:
    """Return the CPU runtime's library of the installed package, or None."""
    try:
        files = importlib.metadata.files(INTEL_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == INTEL_LIBRARY:
            path = Path(str(file.locate())).resolve()
            return path if path.exists() else None
    return None
