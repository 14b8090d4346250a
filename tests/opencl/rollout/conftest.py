"""Small tiles where there is no GPU, in all tests of this folder."""

import pytest

from opencl.devices import all_devices
from opencl.rollout import rollout_program


@pytest.fixture(scope="package", autouse=True)
def small_tiles_on_cpus():
    """A CPU's compiler needs twenty seconds for the GPU's tile, and five for a quarter of it."""
    rollout_program.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        if all_devices()[0].kind == "cpu":
            patch.setattr("opencl.rollout.sizes.TILE", 8)
        yield
    rollout_program.cache_clear()
