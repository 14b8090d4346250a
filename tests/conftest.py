"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers fill the cores; set before torch is imported
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real files with known defects and external oracles; absent outside the workshop."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real market files is not beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory):
    """The miniature study of `tests.study`, trained, evaluated, published; do not write to it."""
    from tests.study import made

    return made(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def skilled(tmp_path_factory: pytest.TempPathFactory):
    """One fold of a study with both skill banks, evaluated, published; do not write to it."""
    from tests.skills import made

    return made(tmp_path_factory.mktemp("skilled"))
