"""bar_scenario.cl: scenario weights, calendar queries and tokens of bars, kernel by kernel."""

import numpy as np
import pytest

from backtest.agent.bank.snapshot import MISS
from backtest.agent.scenario_layout import CALENDAR
from backtest.agent.scenario_weights import NORM_EPS, normalised, softmax
from backtest.agent.weights import N_BAR
from opencl.buffers import empty, upload
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
    return device_program(["bar_scenario.cl"], WRAPPER, SIZES.defines())


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


@pytest.mark.parametrize("bank", [False, True])
def test_bar_tokens(program, bank):
    draw = np.random.default_rng(4)
    norm, position = draw.normal(1, 1, (2, L)).astype(F32), draw.normal(0, 1, (H, L)).astype(F32)
    found = np.full(ROWS, MISS, np.int8)
    found[FIRST : FIRST + BARS] = (0, MISS, -2, 1, 0)
    shift = draw.normal(0, 1, (2, S * H * L)).astype(F32)
    out = table_after(
        program, "bar_tokens", (S * H, BARS + 3), norm, position, found if bank else None,
        shift if bank else None, table_place, I32(FIRST), I32(BARS), NORM_EPS,
    )  # fmt: skip
    sums, tokens = only_columns(*out, 0, S * H * L)
    slot = found[FIRST : FIRST + BARS]
    if bank:
        sums = np.where((slot >= 0)[:, None], sums + shift[np.maximum(slot, 0)], sums)
    wanted = normalised(sums.reshape(BARS, S, H, L)) * norm[0] + norm[1] + position
    np.testing.assert_allclose(tokens, wanted.reshape(BARS, -1), atol=1e-5)


def test_sum_8(program):
    x = np.arange(16, dtype=F32).reshape(2, 8)
    (out,) = evaluate(program, "test_sum_8", 2, x, out=[np.empty(2, F32)])
    assert out.tolist() == [28, 92]
