"""Weights as the B operands of tensor cores: bf16, in the order of a warp's lanes.

`opencl/kernels/tensor.cl` says what a lane holds, `layers_tensor.cl` where a neuron lies.
"""

from __future__ import annotations

import numpy as np

from backtest.market.layout import Array

STEP, WIDTH, LANES = 16, 8, 32  # inputs and outputs of one operand, lanes that hold it
# Column 8*i + 2*t + c of 16 activations holds neuron 4*t + 2*i + c.
NEURON = np.arange(STEP).reshape(4, 2, 2).swapaxes(0, 1).ravel()


def bf16(x: Array) -> Array:
    """Return float32 rounded to nearest even as uint16, the upper half of its bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def layer_operands(w: Array, from_hidden: bool = True) -> Array:
    """Return a hidden layer's weights [n_out, n_in] as float32 bits [n_out/16, n_in/16, 32, 4].

    Args:
        w: weights; both sizes are multiples of 16.
        from_hidden: the inputs are activations too, not in their natural order.
    """
    w = in_order(w, 0)
    return block_operands(in_order(w, 1) if from_hidden else w)


def block_operands(w: Array) -> Array:
    """Return weights [n_out, n_in], in any order, as float32 bits [n_out/16, n_in/16, 32, 4]."""
    tiles = _operands(w)
    n, k = tiles.shape[:2]
    return _bits(tiles.reshape(n // 2, 2, k, LANES, 2).transpose(0, 2, 3, 1, 4))


def head_operands(w: Array) -> Array:
    """Return the heads' weights [n_out, n_in] as float32 bits [n_out/8, n_in/32, 32, 4]."""
    tiles = _operands(in_order(w, 1))
    n, k = tiles.shape[:2]
    return _bits(tiles.reshape(n, k // 2, 2, LANES, 2).swapaxes(2, 3))


def in_order(w: Array, axis: int) -> Array:
    """Return an axis of neurons in the order in which activations lie."""
    blocks = np.arange(w.shape[axis]).reshape(-1, STEP)
    return np.take(w, blocks[:, NEURON].ravel(), axis)


def even(z: Array) -> Array:
    """Return the first of evenly spaced atoms and their distance, float32[2].

    Raises:
        ValueError: they are not evenly spaced.
    """
    distance = (float(z[-1]) - float(z[0])) / (len(z) - 1)
    if not np.allclose(z, z[0] + distance * np.arange(len(z)), rtol=0, atol=1e-5 * abs(distance)):
        raise ValueError("tensor cores take the mean of evenly spaced atoms only; use fp32")
    return np.array([z[0], distance], np.float32)


def _operands(w: Array) -> Array:
    """Return weights [n_out, n_in] as uint32[n_out/8, n_in/16, 32, 2], two inputs a word."""
    n, k = w.shape[0] // WIDTH, w.shape[1] // STEP
    # lane = column*4 + t holds inputs 2t, 2t+1 (word 0) and 2t+8, 2t+9 (word 1)
    pairs = bf16(w).reshape(n, WIDTH, k, 2, 4, 2).astype(np.uint32)
    words = pairs[..., 0] | pairs[..., 1] << 16
    return words.transpose(0, 2, 1, 4, 3).reshape(n, k, LANES, 2)


def _bits(words: Array) -> Array:
    """Return words [..., 2, 2] as float32 bits [..., 4]."""
    return words.reshape(*words.shape[:-2], 4).view(np.float32)
