"""philox.cl against its NumPy twin, bit for bit, through wrapper kernels."""

import numpy as np

from backtest.rng import Stage, key, philox4x32_10, stream, uniform
from opencl.buffers import empty, upload
from opencl.devices import Device
from tests.opencl.conftest import DeviceProgram

WRAPPERS = """
__kernel void blocks(__global const uint4 *counter, __global const uint2 *key, __global uint4 *out)
{
    const int i = get_global_id(0);
    out[i] = philox4x32_10(counter[i], key[i]);
}

__kernel void numbers(const uint2 key, __global const uint *stage, __global const uint *round_,
                      __global const uint *place, const int n, __global float *out)
{
    const int i = get_global_id(0); // place (3, n): episode, t, draw
    out[i] = uniform(key, stream(stage[i], round_[i]), place[i], place[n + i], place[2 * n + i]);
}
"""


def blocks(device: Device, device_program: DeviceProgram, counter: np.ndarray, keys: np.ndarray):
    out = empty(device, counter.shape, np.uint32)
    arguments = upload(device, counter), upload(device, keys), out
    kernel = device_program(["philox.cl"], WRAPPERS).kernel("blocks")
    kernel(device.queue, (len(counter),), None, *(a.buffer for a in arguments))
    return out.read()


def test_philox4x32_10_gives_the_known_answers(
    device: Device, device_program: DeviceProgram
) -> None:
    counter = np.array(
        [[0] * 4, [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32
    )
    keys = np.array([[0, 0], [0xFFFFFFFF] * 2, [0xA4093822, 0x299F31D0]], np.uint32)
    known = np.array(
        [
            [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ],
        np.uint32,
    )
    np.testing.assert_array_equal(blocks(device, device_program, counter, keys), known)


def test_philox4x32_10_equals_numpy(device: Device, device_program: DeviceProgram) -> None:
    random = np.random.default_rng(1)
    counter = random.integers(0, 2**32, (10_000, 4), np.uint32)
    keys = random.integers(0, 2**32, (10_000, 2), np.uint32)
    np.testing.assert_array_equal(
        blocks(device, device_program, counter, keys), philox4x32_10(counter, keys)
    )


def test_uniform_and_stream_equal_numpy(device: Device, device_program: DeviceProgram) -> None:
    random = np.random.default_rng(2)
    n = 10_000
    stage = random.choice(np.array(list(Stage), np.uint32), n)
    round_ = random.integers(0, 2**16, n, np.uint32)
    round_[0] = 2**16 - 1
    place = random.integers(0, 2**32, (3, n), np.uint32)
    k = key(2**32 - 1, "ES", "fold")
    out = empty(device, n, np.float32)
    device_program(["philox.cl"], WRAPPERS).kernel("numbers")(
        device.queue, (n,), None, k,
        upload(device, stage).buffer, upload(device, round_).buffer, upload(device, place).buffer,
        np.int32(n), out.buffer,
    )  # fmt: skip
    assert stream(stage, round_)[0] == stage[0] * 2**16 + 2**16 - 1
    np.testing.assert_array_equal(out.read(), uniform(k, stage, round_, *place))
