"""The generated OpenCL C: what it says, and that the device's compiler reads it the same way."""

import re

import numpy as np
import pytest

from backtest.errors import KernelError
from backtest.market.layout import BAR, PARAMS, Struct
from opencl import layout
from opencl.buffers import empty, upload
from opencl.devices import Device
from tests.opencl.conftest import DeviceProgram

# Written out by hand: what kernels rely on by name.
CODES = {
    "DIRECTION_SHORT": 0, "DIRECTION_HOLD": 1, "DIRECTION_LONG": 2, "DIRECTION_FLAT": 3,
    "ORDER_MARKET": 0, "ORDER_LIMIT": 1, "ORDER_DEEP_LIMIT": 2,
    "END_RUNNING": 0, "END_TERMINATED": 1, "END_TRUNCATED": 2, "END_DEAD": 3,
    "FILL_NEXT_OPEN": 0, "FILL_CLOSE": 1, "FORMULA_COMPOSITE": 0, "FORMULA_CALIBRATED": 1,
    "BAR_ROLL": 1, "BAR_NO_VOLUME": 2, "STAGE_COLLECT": 0,
    "BRANCH_DIRECTION": 0, "BRANCH_MAGNITUDE": 1, "BRANCH_ORDER": 2, "BRANCH_URGENCY": 3,
    "N_DIRECTION": 4, "N_MAGNITUDE": 3, "N_ORDER": 3, "N_URGENCY": 3,
    "FIRST_DIRECTION": 0, "FIRST_MAGNITUDE": 4, "FIRST_ORDER": 7, "FIRST_URGENCY": 10,
    "N_BRANCHES": 4, "N_ACTIONS": 13, "COMPONENT_DSR": 0, "COMPONENT_R_AUX": 9,
    "N_COMPONENTS": 10, "PORTFOLIO_STRIDE": 12, "STATE_DIM": 128, "N_PORTFOLIO": 13,
    "AUX_SLOT": 121, "N_ENVS": 4096, "SHIFT": -3,
}  # fmt: skip


def test_begins_with_the_pragma() -> None:
    assert layout.preamble().startswith("#pragma OPENCL FP_CONTRACT OFF\n")


def test_codes_have_their_values_on_the_device(
    device: Device, device_program: DeviceProgram
) -> None:
    lines = "".join(f"    out[{i}] = {name};\n" for i, name in enumerate(CODES))
    source = f"__kernel void codes(__global int *out)\n{{\n{lines}}}\n"
    out = empty(device, len(CODES), np.int32)
    program = device_program((), source, {"N_ENVS": 4096, "SHIFT": -3})
    program.kernel("codes")(device.queue, (1,), None, out.buffer)
    assert dict(zip(CODES, out.read().tolist(), strict=True)) == CODES


def test_real_constants_are_float32_on_the_device(
    device: Device, device_program: DeviceProgram
) -> None:
    reals = {"DUST": 0.001, "Z_LIMIT": 5, "STATE_LIMIT": 10, "HOLD_UNIT": 1 / np.log1p(1000)}
    lines = "".join(f"    out[{i}] = {name};\n" for i, name in enumerate(reals))
    source = f"__kernel void reals(__global float *out)\n{{\n{lines}}}\n"
    out = empty(device, len(reals), np.float32)
    device_program((), source).kernel("reals")(device.queue, (1,), None, out.buffer)
    np.testing.assert_array_equal(out.read(), np.array(list(reals.values()), np.float32))


def test_tables_have_their_values_on_the_device(
    device: Device, device_program: DeviceProgram
) -> None:
    source = """
__kernel void tables(__global int *out)
{
    for (int i = 0; i < N_BRANCHES; i++)
        out[i] = BRANCH_SIZE[i];
    for (int i = 0; i < N_PORTFOLIO; i++)
        out[N_BRANCHES + i] = PORTFOLIO_SLOT[i];
}
"""
    out = empty(device, 17, np.int32)
    device_program((), source).kernel("tables")(device.queue, (1,), None, out.buffer)
    slots = [112, 113, 114, 115, 116, 117, 118, 119, 120, 122, 123, 124, 125]
    assert out.read().tolist() == [4, 3, 3, 3, *slots]


def test_structs_have_the_sizes_of_the_specification() -> None:
    sizes = {struct: size for struct, field, size in layout.expected() if field == "sizeof"}
    assert sizes["EpisodeState"] == 64  # one cache line
    assert sizes["Bar"] == 32
    rows = {(struct, field): offset for struct, field, offset in layout.expected()}
    assert rows["EpisodeState", "realized_pnl"] == 44  # the last of the 12 original floats
    assert rows["MarketParams", "urgency"] == 14 * 4  # after 11 floats and magnitude[3]


def test_the_device_reports_what_is_expected(device: Device, device_program: DeviceProgram) -> None:
    out = empty(device, len(layout.expected()), np.uint32)
    program = device_program((), layout.probe_source())
    program.kernel("layout_probe")(device.queue, (1,), None, out.buffer)
    assert out.read().tolist() == [value for _, _, value in layout.expected()]
    layout.check(out.read().tolist(), device.name)


def test_a_struct_passes_by_value(device: Device, device_program: DeviceProgram) -> None:
    source = """
__kernel void fields(const MarketParams params, __global const Bar *bar, __global float *out)
{
    const float seen[] = {params.base, params.magnitude[2], params.offset[0], params.w_dsr,
                          (float)params.formula, bar[1].open,
                          (float)(bar[1].flags & BAR_NO_VOLUME)};
    for (int i = 0; i < 7; i++)
        out[i] = seen[i];
}
"""
    values = {name: 0 for name, _, _ in PARAMS.fields}
    values |= {
        "base": 5.5,
        "magnitude": (1, 2, 3),
        "offset": (4, 0, 0),
        "w_dsr": 0.25,
        "formula": 1,
    }
    bars = np.zeros(2, BAR.dtype)
    bars[1]["open"], bars[1]["flags"] = -37.5, 3
    out = empty(device, 7, np.float32)
    device_program((), source).kernel("fields")(
        device.queue, (1,), None, PARAMS.pack(**values), upload(device, bars).buffer, out.buffer
    )
    assert out.read().tolist() == [5.5, 3, 4, 0.25, 1, -37.5, 2]


def test_a_different_layout_is_refused_by_name() -> None:
    reported = [value for _, _, value in layout.expected()]
    wrong = next(i for i, row in enumerate(layout.expected()) if row[:2] == ("Bar", "sigma"))
    reported[wrong] = 24
    with pytest.raises(KernelError, match=r"Bar\.sigma: 16 bytes on the host, 24 on Some GPU"):
        layout.check(reported, "Some GPU")


class Padded(Struct):
    """A host record with a gap that the C struct does not have."""

    @property
    def dtype(self) -> np.dtype[np.void]:
        return np.dtype({"names": ["a", "b"], "formats": ["f4", "f4"], "offsets": [0, 8]})


def test_a_gap_on_the_host_is_refused_by_the_device(
    device: Device, device_program: DeviceProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = (("a", np.float32, 1), ("b", np.float32, 1))
    monkeypatch.setattr(layout, "STRUCTS", (Padded("Pair", fields),))
    out = empty(device, 3, np.uint32)
    program = device_program((), layout.probe_source())
    program.kernel("layout_probe")(device.queue, (1,), None, out.buffer)
    assert out.read().tolist() == [8, 0, 4]
    with pytest.raises(KernelError, match=r"Pair\.sizeof: 12 bytes on the host, 8 on"):
        layout.check(out.read().tolist(), device.name)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_envs", 1), ("2N", 1), ("END_DEAD", 1), ("N_ENVS", 2**31), ("N ENVS", 1)],
)
def test_refuses_a_size_that_is_no_constant(name: str, value: int) -> None:
    with pytest.raises(KernelError, match=re.escape(name)):
        layout.preamble(**{name: value})


def test_refuses_a_size_that_is_no_integer() -> None:
    with pytest.raises(TypeError):
        layout.preamble(N_ENVS=1.5)


def test_sizes_may_be_numpy_integers() -> None:
    assert "#define N_ENVS (7)\n" in layout.preamble(N_ENVS=np.int64(7))
