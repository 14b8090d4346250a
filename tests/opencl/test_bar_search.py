"""bar_search_lanes.cl and bar_search_group.cl against `retrieve_rows`, bit for bit."""

import numpy as np
import pytest

from backtest.agent.bank.ordered import ordered_sum
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.snapshot import ABSTAIN, MISS
from opencl.buffers import empty, upload
from opencl.rollout.shape import Shape
from opencl.rollout.sizes import Sizes
from opencl.rollout.skills import step_bank
from tests.opencl.wrapping import evaluate
from tests.snapshots import snapshot_of

F32, I32 = np.float32, np.int32
BARS, FIRST, ROW = 301, 4, 7  # queries, from a row of the source on, to a row of the result on
WRAPPER = """
__kernel void test_score_own(__global const float *x, __global const float *key, const int padded,
                             __global float *out)
{
    float mine[192];
    for (int k = 0; k < padded; k++) {
        mine[k] = x[get_global_id(0) * padded + k];
    }
    out[get_global_id(0)] = score_own(mine, key, padded);
}
"""


def shape_of(latent, slots):
    return Shape((8, 8), 11, ("direction",), "scenario", 3, 2, latent, slots=slots)


@pytest.mark.parametrize("variant", ["lanes", "group"])
@pytest.mark.parametrize("latent, key_dim", [(2, None), (32, None), (30, None), (30, 42)])
def test_bar_search(device_program, variant, latent, key_dim):
    """Contexts of 12, 192 (a multiple of 64) and 180 floats, and 42 features of wider rows."""
    shape, group = shape_of(latent, slots=9), variant == "group"
    sizes = Sizes(shape, group, 2**16, "")
    files = ["skill_search_group.cl"] if group else []
    program = device_program(
        ["skill_score.cl", *files, f"bar_search_{variant}.cl"],
        "" if group else WRAPPER,
        sizes.defines(),
    )
    device, dim = program.device, shape.step_dim
    draw = np.random.default_rng(latent)
    source = draw.normal(0, 1, (FIRST + BARS, dim + 5)).astype(F32)
    source[FIRST + 1, 0], source[FIRST + 2, :dim] = np.nan, 0
    width = key_dim or dim
    h = source[FIRST:, :width]
    bank = snapshot_of(h[3:], 9, dim, seed=latent, threshold=0.1)
    source[FIRST] = np.concatenate([bank.center, np.zeros(dim + 5 - width, F32)])  # no direction
    arrays = step_bank(sizes, bank, 115)
    found = empty(device, ROW + BARS + 1, np.int8)
    found.write(np.full(ROW + BARS + 1, 99, np.int8))
    names = ("keys", "center", "entries", "disagree")
    given = [upload(device, a).buffer for a in (source, *(arrays[name] for name in names))]
    padded = -(-width // 64) * 64
    size = ((64 * -(-BARS // 4),), (64,)) if group else ((BARS,), (1,))
    program.kernel("bar_search")(
        device.queue, *size, *given, found.buffer,
        *map(I32, (FIRST, ROW, dim + 5, width, BARS if group else padded)),
    )  # fmt: skip
    *seen, behind = found.read()
    seen = np.array(seen)
    np.testing.assert_array_equal(seen[ROW:], retrieve_rows(bank, np.ascontiguousarray(h)))
    assert (seen[:ROW] == 99).all() and behind == 99
    assert {MISS, ABSTAIN} < set(seen[ROW:]) and (seen[ROW : ROW + 2] == MISS).all()


@pytest.mark.parametrize("dim", [5, 64, 150])
def test_score_own(device_program, dim):
    program = device_program(
        ["skill_score.cl", "bar_search_lanes.cl"], WRAPPER, {"SLOTS": 12, "SEARCH_ROW": 192}
    )
    draw = np.random.default_rng(dim)
    x, key = draw.normal(0, 1, (8, dim)).astype(F32), draw.normal(0, 1, dim).astype(F32)
    wide = -dim % 64
    (out,) = evaluate(
        program, "test_score_own", 8, np.pad(x, ((0, 0), (0, wide))), np.pad(key, (0, wide)),
        I32(dim + wide), out=[np.empty(8, F32)],
    )  # fmt: skip
    np.testing.assert_array_equal(out, ordered_sum(x * key))
