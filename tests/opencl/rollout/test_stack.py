"""Earlier interpretations and the best tokens only: the rest of the scenario network's settings."""

import pytest

from opencl.devices import all_devices
from tests.opencl.rollout.scene import BARS, FEW, NETWORK, Scene, check_values, same

STACKED = NETWORK.model_copy(update={"stack_size": 3, "top_k": 2, "horizon": 5, "latent": 12})
DEVICE = all_devices()[0]  # compiling takes seconds
by_kernel = pytest.mark.parametrize("variant", ["lanes", "group"])


@pytest.fixture(scope="module")
def scene():
    return Scene(STACKED)


@by_kernel
def test_a_stack_and_the_best_tokens_equal_numpy(scene, variant):
    seen = scene.play(scene.rollout(DEVICE, variant))
    check_values(seen, *scene.expected(seen))


@by_kernel
def test_a_stack_survives_a_cut_walk(scene, variant):
    whole = scene.launch(scene.rollout(DEVICE, variant), **FEW)
    budget = 12 * (whole.planned["tables"] // BARS)
    launch = scene.launch(scene.rollout(DEVICE, variant, budget=budget), **FEW)
    assert len(launch.events) > 3
    same(whole.read(), launch.read())
