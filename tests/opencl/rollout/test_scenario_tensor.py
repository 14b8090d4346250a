"""The scenario rollout on tensor cores against NumPy.

A test of minutes without one: `emulation` compiles slowly.
"""

import numpy as np
import pytest

from backtest.agent.bank.snapshot import ABSTAIN, MISS
from backtest.market.layout import End
from backtest.market.walk import walk_actions
from opencl.tensor_probe import has_tensor_cores
from tests.opencl import emulation
from tests.opencl.rollout.scene import AGREEMENT, BARS, FEW, NETWORK, Scene, same
from tests.opencl.wrapping import assert_same_records

# Of the largest action value. bf16 keeps 8 bits of tokens, weights and activations: 4e-3 was seen
# with the original sizes on an H200, 1e-2 with the small ones here.
VALUE_TOLERANCE = 2e-2
ORIGINAL = {"hidden": (128, 128), "atoms": 51, "horizon": 12, "latent": 16}
WIDE = {"hidden": (32, 32), "horizon": 12, "latent": 16}
SMALL = {"hidden": (40, 24), "horizon": 6, "latent": 8}
CASES = [
    pytest.param((device, network, tile), marks=() if native else pytest.mark.slow)
    for device in emulation.DEVICES
    for native in [has_tensor_cores(device)]
    for network, tile in ((ORIGINAL if native else WIDE, 128 if native else 64), (SMALL, 16))
]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A device, a network, and episodes a work-group: a warp takes blocks of 16, or shares one."""
    device, network, tile = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opencl.rollout.sizes.TENSOR_TILE", tile)
        patch.setattr("opencl.rollout.sizes.Sizes.tiling", lambda *few: (tile, 4))
        if not has_tensor_cores(device):
            patch.setattr("opencl.programs.read", emulation.emulated)
        yield device, network


@pytest.fixture(scope="module")
def scene(case):
    return Scene(NETWORK.model_copy(update=case[1]))


@pytest.fixture(scope="module")
def run(case, scene):
    return scene.rollout(case[0], "tensor")


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


def test_it_does_nearly_what_float32_does(case, scene, seen):
    plain = scene.play(scene.rollout(case[0], "auto"))
    agree = (seen.action == plain.action).all(axis=-1) & (seen.slots == plain.slots).all(axis=-1)
    together = np.logical_and.accumulate(agree, axis=0)
    np.testing.assert_array_equal(seen.reward[together], plain.reward[together])
    gap = np.abs(seen.values - plain.values)[together]
    assert gap.max() <= VALUE_TOLERANCE * np.abs(plain.values).max()


def test_twice_the_same_and_in_any_company(case, scene, run, seen):
    """Runs of episodes on one bar are cut elsewhere, tables are smaller: no bit changes."""
    same(seen, scene.play(run))
    whole = scene.launch(run, **FEW)
    budget = 12 * (whole.planned["tables"] // BARS)
    launch = scene.launch(scene.rollout(case[0], "tensor", budget=budget), **FEW)
    assert len(launch.events) > 3
    same(whole.read(), launch.read())
