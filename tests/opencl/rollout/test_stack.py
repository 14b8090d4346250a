"""Earlier interpretations and the best tokens only: the rest of the scenario network's settings.

Compiling takes seconds: with two devices, each proves one of the two kernels.
"""

import pytest

from opencl.devices import all_devices
from tests.opencl.rollout.scene import BARS, FEW, NETWORK, Scene, check_values, same

STACKED = NETWORK.model_copy(update={"stack_size": 3, "top_k": 2, "horizon": 5, "latent": 8})
KERNELS = {"lanes": all_devices()[0], "group": all_devices()[:2][-1]}


@pytest.fixture(scope="module")
def scene():
    return Scene(STACKED)


@pytest.mark.parametrize("variant", KERNELS)
def test_a_stack_and_the_best_tokens_equal_numpy(scene, variant):
    seen = scene.play(scene.rollout(KERNELS[variant], variant))
    check_values(seen, *scene.expected(seen))


@pytest.mark.parametrize("variant", KERNELS)
def test_a_stack_survives_a_cut_walk(scene, variant):
    whole = scene.launch(scene.rollout(KERNELS[variant], variant), **FEW)
    budget = 12 * (whole.planned // BARS)
    launch = scene.launch(scene.rollout(KERNELS[variant], variant, budget=budget), **FEW)
    assert len(launch.events) > 3
    same(whole.read(), launch.read())
