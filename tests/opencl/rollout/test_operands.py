"""Weights as operands of tensor cores, against the definition lane by lane."""

import numpy as np
import pytest

from opencl.rollout.operands import bf16, even, head_operands, in_order, layer_operands


def unpacked(bits):
    """Operands float32 bits [..., 32, 4] as float32 [..., 32, 4, 2], low half first."""
    words = bits.view(np.uint32)
    return np.stack([words << 16, words & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)


def numbered(n_out, n_in):
    """Weights that say where they stand: bf16 holds integers up to 256."""
    return np.arange(n_out * n_in, dtype=np.float32).reshape(n_out, n_in) % 251


def test_bf16_rounds_to_nearest_even():
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -2.5, -np.inf], np.float32)
    seen = (bf16(x).astype(np.uint32) << 16).view(np.float32)
    assert seen.tolist() == [1, 1, 1 + 2**-6, 1 + 2**-7, -2.5, -np.inf]


@pytest.mark.parametrize("from_hidden", [True, False])
def test_a_layer_lies_as_its_lanes_read_it(from_hidden):
    w = numbered(32, 48)
    seen = unpacked(layer_operands(w, from_hidden))
    assert seen.shape == (2, 3, 32, 4, 2)
    for n, k, lane, word, half in np.ndindex(seen.shape):
        g, t = divmod(lane, 4)
        column = 8 * (word // 2) + g  # of 16 outputs
        row = 8 * (word % 2) + 2 * t + half  # of 16 inputs
        out = 16 * n + neuron(column)
        into = 16 * k + (neuron(row) if from_hidden else row)
        assert seen[n, k, lane, word, half] == w[out, into]


def test_heads_lie_as_their_lanes_read_them():
    w = numbered(24, 64)
    seen = unpacked(head_operands(w))
    assert seen.shape == (3, 2, 32, 4, 2)
    for n, k, lane, word, half in np.ndindex(seen.shape):
        g, t = divmod(lane, 4)
        row = 8 * (word % 2) + 2 * t + half
        into = 32 * k + 16 * (word // 2) + neuron(row)
        assert seen[n, k, lane, word, half] == w[8 * n + g, into]


def neuron(column):
    """The neuron in a column of 16 activations, as layers_tensor.cl defines it."""
    i, rest = divmod(column, 8)
    t, c = divmod(rest, 2)
    return 4 * t + 2 * i + c


def test_in_order_takes_blocks_of_sixteen():
    assert in_order(np.arange(32), 0).tolist() == [
        16 * b + neuron(c) for b in (0, 1) for c in range(16)
    ]


def test_atoms_are_evenly_spaced():
    assert even(np.linspace(-3, 3, 7).astype(np.float32)).tolist() == [-3, 1]
    with pytest.raises(ValueError, match="evenly spaced"):
        even(np.array([0, 1, 3], np.float32))
