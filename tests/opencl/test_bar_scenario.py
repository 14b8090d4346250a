"""bar_scenario.cl: scenario weights, calendar queries and tokens of bars, kernel by kernel."""

import numpy as np
import pytest

from backtest.agent.bank.snapshot import MISS
from backtest.agent.scenario_layout import CALENDAR
from backtest.agent.scenario_weights import NORM_EPS, normalised, softmax
from backtest.agent.weights import N_BAR
from opencl.buffers import empty, upload
from opencl.rollout.packing import padded
from opencl.rollout.sizes import Sizes
from tests.opencl.rollout.scene import NETWORK, Scene, shape_of
from tests.opencl.wrapping import evaluate

F32, I32 = np.float32, np.int32
ROWS, FIRST, BARS = 9, 2, 5  # rows of the table; where five bars go
S, H, L = NETWORK.scenarios, NETWORK.horizon, NETWORK.latent  # L = 10: eight and a rest
SIZES = Sizes(shape_of(NETWORK), False, 0, "")
WRAPPER = """
__kernel void test_sum_8(__global const float *x, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = sum_8(vload8(i, x));
}
"""


@pytest.fixture
def program(device_program):
    return device_program(["bar_scenario.cl", "bar_tokens_lanes.cl"], WRAPPER, SIZES.defines())


def table_after(program, name, size, *arguments, seed=0):
    """Return the table before and after a kernel; a buffer is given, None is the table."""
    before = np.random.default_rng(seed).normal(0, 1, (ROWS, SIZES.bar_row)).astype(F32)
    table = empty(program.device, before.shape, F32)
    table.write(before)
    given = [table.buffer if a is table_place else a for a in arguments]
    given = [upload(program.device, a).buffer if np.ndim(a) else a for a in given]
    program.kernel(name)(program.device.queue, size, None, *given)
    return before, table.read()


table_place = object()


def only_columns(before, after, start, stop):
    """What lies elsewhere is left alone; return the changed part."""
    changed = before.copy()
    part = (slice(FIRST, FIRST + BARS), slice(start, stop))
    changed[part] = after[part]
    np.testing.assert_array_equal(changed, after)
    return before[part], after[part]


def test_bar_share(program):
    out = table_after(program, "bar_share", (BARS + 2,), table_place, I32(FIRST), I32(BARS))
    logits, shares = only_columns(*out, SIZES.share_at, SIZES.share_at + S)
    np.testing.assert_allclose(shares, softmax(logits), rtol=1e-6)


def test_bar_calendar(program):
    w, x = Scene().weights[0], Scene().x
    out = table_after(
        program, "bar_calendar", (S * L, BARS + 1), x, np.array(CALENDAR, I32),
        np.ascontiguousarray(w.Wq_calendar.T), w.bq_calendar, table_place,
        *map(I32, (3, FIRST, BARS)),
    )  # fmt: skip
    before, after = out
    place = slice(FIRST, FIRST + BARS), slice(SIZES.input_at, SIZES.input_at + len(CALENDAR))
    inputs = x[3 : 3 + BARS][:, list(CALENDAR)]
    np.testing.assert_array_equal(after[place], inputs)
    before[place] = inputs
    _, queries = only_columns(before, after, SIZES.calendar_at, SIZES.calendar_at + S * L)
    wanted = inputs @ w.Wq_calendar.T + w.bq_calendar
    np.testing.assert_allclose(queries, wanted, atol=1e-5)
    assert x.shape[1] == N_BAR


def bank_of(draw, bank, dim):
    """What a step bank found for each row of the table, and its two corrections, or None."""
    found = np.full(ROWS, MISS, np.int8)
    found[FIRST : FIRST + BARS] = (0, MISS, -2, 1, 0)
    return (found, draw.normal(0, 1, (2, dim)).astype(F32)) if bank else (None, None)


def tokens_of(sums, found, shift, norm, position):
    """The definition: float[BARS, S, H, L] of sums float[BARS, S*H*L]."""
    if found is not None:
        slot = found[FIRST : FIRST + BARS]
        sums = np.where((slot >= 0)[:, None], sums + shift[np.maximum(slot, 0)], sums)
    return normalised(sums.reshape(BARS, S, *position.shape)) * norm[0] + norm[1] + position


@pytest.mark.parametrize("bank", [False, True])
def test_bar_tokens_in_place(program, bank):
    draw = np.random.default_rng(4)
    norm, position = draw.normal(1, 1, (2, L)).astype(F32), draw.normal(0, 1, (H, L)).astype(F32)
    found, shift = bank_of(draw, bank, S * H * L)
    out = table_after(
        program, "bar_tokens", (S * H, BARS + 3), norm, position, found, shift, table_place,
        I32(FIRST), I32(BARS), NORM_EPS,
    )  # fmt: skip
    sums, tokens = only_columns(*out, 0, S * H * L)
    wanted = tokens_of(sums, found, shift, norm, position)
    np.testing.assert_allclose(tokens, wanted.reshape(BARS, -1), atol=1e-5)


@pytest.mark.parametrize("bank", [False, True])
@pytest.mark.parametrize(
    "tensor, horizon, latent", [(0, 4, 10), (0, 4, 16), (1, 12, 16), (1, 6, 8)]
)
def test_bar_tokens_from_latents(device_program, monkeypatch, bank, tensor, horizon, latent):
    """As float32, or in bf16 as the lanes of a warp read them: round_pair, store_operand."""
    monkeypatch.setattr("opencl.rollout.sizes.TENSOR_TILE", 16)
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 16)
    network = NETWORK.model_copy(update={"horizon": horizon, "latent": latent})
    sizes = Sizes(shape_of(network), True, 2**16, "", bool(tensor))
    program = device_program(["bar_tokens_group.cl"], "", sizes.defines())
    draw = np.random.default_rng(5)
    norm, position, weight, bias, z = (
        draw.normal(0, 1, shape).astype(F32)
        for shape in ((2, latent), (horizon, latent), (latent, latent), latent,
                      (BARS + 3, S, horizon, latent))
    )  # fmt: skip
    found, shift = bank_of(draw, bank, S * horizon * latent)
    wide = -(-latent // 8) * 8
    arrays = (z, padded(weight.T, latent, wide), padded(bias, wide), norm, position, found, shift)
    table = empty(program.device, (ROWS, sizes.bar_row), F32)
    table.write(np.full((ROWS, sizes.bar_row), 7, F32))
    given = [None if a is None else upload(program.device, a).buffer for a in arrays]
    size = S * (16 if tensor else horizon) * BARS + 5
    program.kernel("bar_tokens")(
        program.device.queue, (size,), None, *given, table.buffer,
        *map(I32, (3, FIRST, BARS)), NORM_EPS,
    )  # fmt: skip
    seen = table.read()
    sums = (z[3:] @ weight.T + bias).reshape(BARS, -1)
    wanted = tokens_of(sums, found, shift, norm, position)
    at = sizes.tokens_at if tensor else 0
    part = (slice(FIRST, FIRST + BARS), slice(at, at + (S * 128 if tensor else wanted[0].size)))
    tokens = np.ascontiguousarray(seen[part])
    seen[part] = 7
    assert (seen == 7).all()
    if not tensor:
        np.testing.assert_allclose(tokens, wanted.reshape(BARS, -1), atol=1e-5)
        return
    words = tokens.view(np.uint32).reshape(BARS, S, 8, 4, 2, 2)  # lane 4*g + t; token, latent
    halves = np.stack([words << 16, words & np.uint32(0xFFFF0000)], axis=-1).view(F32)
    halves = halves.transpose(0, 1, 4, 2, 5, 3, 6).reshape(BARS, S, 16, 16)
    full = np.zeros((BARS, S, 16, 16))
    full[:, :, :horizon, :latent] = wanted
    np.testing.assert_allclose(halves, full, atol=1e-5, rtol=2**-8)
    assert (halves[full == 0] == 0).all()


def test_sum_8(program):
    x = np.arange(16, dtype=F32).reshape(2, 8)
    (out,) = evaluate(program, "test_sum_8", 2, x, out=[np.empty(2, F32)])
    assert out.tolist() == [28, 92]
