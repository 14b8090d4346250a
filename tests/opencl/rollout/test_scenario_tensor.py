"""The scenario rollout on tensor cores against NumPy; only an NVIDIA GPU runs these."""

import numpy as np
import pytest

from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.market.layout import End
from backtest.market.walk import walk_actions
from opencl.devices import all_devices
from opencl.tensor_probe import has_tensor_cores
from tests.opencl.rollout.scene import (
    AGREEMENT,
    BARS,
    FEW,
    NETWORK,
    Scene,
    same,
)
from tests.opencl.wrapping import assert_same_records

# of the largest action value; see test_slots_values_and_choices
VALUE_TOLERANCE = 2e-2
DEVICES = [device for device in all_devices() if has_tensor_cores(device)]
pytestmark = pytest.mark.skipif(not DEVICES, reason="no GPU with tensor cores that take bf16")
ORIGINAL = {"hidden": (128, 128), "atoms": 51, "horizon": 12, "latent": 16}
SMALL = {"hidden": (40, 24), "horizon": 6, "latent": 8}


@pytest.fixture(scope="module", params=[ORIGINAL, SMALL], ids=["original", "small"])
def scene(request):
    return Scene(NETWORK.model_copy(update=request.param))


@pytest.fixture(scope="module", autouse=True)
def whole_tiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opencl.rollout.sizes.TENSOR_TILE", 64)
        yield


@pytest.fixture(scope="module")
def run(scene):
    return scene.rollout(DEVICES[0], "tensor")


@pytest.fixture(scope="module")
def seen(scene, run):
    return scene.play(run)


def test_slots_values_and_choices(scene, seen):
    slots, values = scene.expected(seen)
    living = seen.end != End.DEAD
    agree = (slots == seen.slots).all(axis=-1)
    assert agree[living].mean() >= AGREEMENT
    found = seen.slots[living]
    for bank in range(2):
        assert {MISS, ABSTAIN} < set(found[:, bank]) and len(set(found[:, bank])) > 4
    gap = np.abs(seen.values - values)[agree & living]
    assert gap.max() <= VALUE_TOLERANCE * np.abs(values).max()
    chosen, wanted = seen.values[..., :4].argmax(-1), values[..., :4].argmax(-1)
    assert (chosen == wanted)[agree & living].mean() >= AGREEMENT
    walk = walk_actions(scene.tape, seen.start, seen.action)
    assert_same_records(walk.result, seen.trace)


def test_it_does_nearly_what_float32_does(scene, seen):
    plain = scene.play(scene.rollout(DEVICES[0], "group"))
    agree = (seen.action == plain.action).all(axis=-1) & (seen.slots == plain.slots).all(axis=-1)
    together = np.logical_and.accumulate(agree, axis=0)
    np.testing.assert_array_equal(seen.reward[together], plain.reward[together])
    gap = np.abs(seen.values - plain.values)[together]
    assert gap.max() <= VALUE_TOLERANCE * np.abs(plain.values).max()


def test_twice_the_same_and_in_any_company(scene, run, seen):
    """Runs of episodes on one bar are cut elsewhere, tables are smaller: no bit changes."""
    same(seen, scene.play(run))
    whole = scene.launch(run, **FEW)
    budget = 12 * (whole.planned // BARS)
    launch = scene.launch(scene.rollout(DEVICES[0], "tensor", budget=budget), **FEW)
    assert len(launch.events) > 3
    same(whole.read(), launch.read())
