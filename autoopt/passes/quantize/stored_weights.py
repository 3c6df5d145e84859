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


def unpacked_table(
    levels: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Levels and zero points of a table that GatherBlockQuantized reads, from bytes that hold them along the last axis.

    None for the zero points is the middle level.
    """
    offsets = np.full(scales.shape, 2 ** (bits - 1))
    if zeros is not None:
        offsets = unpacked(zeros, bits, scales.shape[-1])
    return unpacked(levels, bits, levels.shape[-1] * 8 // bits), offsets


def block_levels(packed: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """The levels (columns, inner) of a MatMulNBits node, packed into bytes (columns, blocks, bytes)."""
    inner, columns, block_size = attributes["K"], attributes["N"], attributes["block_size"]
    rows = unpacked(packed.reshape(columns, -1, packed.shape[-1]), attributes.get("bits", 4), block_size)
    return rows.reshape(columns, -1)[:, :inner]


def block_zeros(zeros: np.ndarray | None, attributes: dict[str, Any]) -> np.ndarray:
    """The zero points (columns, blocks) of a MatMulNBits node.

    They are packed into bytes, or in the type of the scales; None is the middle level.
    """
    columns, bits = attributes["N"], attributes.get("bits", 4)
    blocks = -(-attributes["K"] // attributes["block_size"])
    if zeros is None:
        return np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    zeros = zeros.reshape(columns, -1)
    if zeros.dtype == np.uint8:
        zeros = unpacked(zeros, bits, blocks)
    return zeros[:, :blocks]


def block_matrix(
    levels: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, attributes: dict[str, Any]
) -> np.ndarray:
    """The matrix (inner, columns) that a MatMulNBits node multiplies with."""
    offsets = block_zeros(zeros, attributes)
    rows = block_levels(levels, attributes)
    values = dequantized(rows, scales.reshape(offsets.shape), offsets, 1, attributes["block_size"])
    return np.ascontiguousarray(values.T)
