"""The float values of weights that a model stores quantized."""

from __future__ import annotations

from typing import Any

from autoopt.model.lazy_imports import np


def dequantized(
    levels: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: int = -1, block_size: int = 0
) -> np.ndarray:
    """The values of quantized weights, in the type of their scale.

    There is one scale for all, for each index of `axis`, or for each block of `block_size` along `axis`. Zero points
    have the shape of the scale; None stands for 0.
    """
    offset = np.zeros_like(scale) if zero is None else zero
    factors = [_spread(value.astype(np.float64), levels.shape, axis, block_size) for value in (offset, scale)]
    values: np.ndarray = ((levels.astype(np.float64) - factors[0]) * factors[1]).astype(scale.dtype)
    return values


def _spread(values: np.ndarray, shape: tuple[int, ...], axis: int, block_size: int) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to the weights."""
    if block_size:
        repeated = np.repeat(values, block_size, axis)
        return np.take(repeated, range(shape[axis]), axis)
    if values.size == 1:
        return values.reshape(())
    if values.ndim > 1:
        return values
    spread = [1] * len(shape)
    spread[axis] = values.size
    return values.reshape(spread)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` values of `bits` bits that bytes hold along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(*packed.shape[:-1], -1)[..., :count]


def block_matrix(
    levels: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, attributes: dict[str, Any]
) -> np.ndarray:
    """The matrix (inner, columns) that a MatMulNBits node multiplies with.

    `levels` are packed into bytes (columns, blocks, bytes). Zero points are packed too, or in the type of the scales;
    None is the middle level.
    """
    inner, columns, block_size = attributes["K"], attributes["N"], attributes["block_size"]
    bits = attributes.get("bits", 4)
    blocks = -(-inner // block_size)
    if zeros is None:
        zeros = np.full((columns, blocks), 2 ** (bits - 1))
    zeros = zeros.reshape(columns, -1)
    if zeros.dtype == np.uint8:
        zeros = unpacked(zeros, bits, blocks)
    rows = unpacked(levels.reshape(columns, blocks, -1), bits, block_size).reshape(columns, -1)
    values = dequantized(rows, scales.reshape(columns, blocks), zeros[:, :blocks], 1, block_size)
    return np.ascontiguousarray(values[:, :inner].T)
