"""Quantized weights in plain numpy: rounded to blocks of few bits, stored as MatMulNBits has them, and read again.

AWQ and GPTQ round so that the products of a matrix with real inputs change least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN
from autoopt.tuning import QUANTIZATION

EXPONENTS: Final = tuple(step / 20 for step in range(1, 20))
"""Exponents of the magnitudes of channels that AWQ tries."""
SHARES: Final = tuple(1 - step / 20 for step in range(11))
"""Shares of a block's range that AWQ tries."""
DAMPING: Final = 0.01
"""Share of the mean of the Hessian's diagonal that GPTQ adds to it."""


@dataclass(frozen=True)
class BlockGrid:
    """The values that a weight can take: `2**bits` levels for each block of a column.

    Matrices have the shape (inner, columns); blocks (blocks, block_size, columns), padded with zeros. Rounds like
    onnxruntime's own quantizer.
    """

    bits: int
    block_size: int
    is_symmetric: bool

    @property
    def highest(self) -> int:
        return int(2**self.bits) - 1

    def split(self, matrix: np.ndarray) -> np.ndarray:
        """The blocks of a matrix."""
        padding = -len(matrix) % self.block_size
        padded = np.pad(matrix, ((0, padding), (0, 0)))
        return padded.reshape(-1, self.block_size, matrix.shape[1])

    def fit(self, blocks: np.ndarray, share: float | np.ndarray = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Scales and zero points, (blocks, 1, columns), for this share of the range of each block."""
        low = np.minimum(blocks.min(axis=1, keepdims=True), 0) * share
        high = np.maximum(blocks.max(axis=1, keepdims=True), 0) * share
        middle = (self.highest + 1) // 2
        if self.is_symmetric:
            # There is one level more below the middle than above, so the value farthest from zero gets the lowest.
            scale = np.where(high > -low, high, low) / -middle
            zero = np.full_like(scale, middle)
        else:
            scale = (high - low) / self.highest
            zero = np.round(-low / np.where(scale == 0, 1, scale))
        return np.where(scale == 0, 1, scale).astype(blocks.dtype), zero

    def levels(self, blocks: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """The nearest levels, from 0 to `2**bits - 1`."""
        levels: np.ndarray = np.clip(np.round(blocks / scale) + zero, 0, self.highest)
        return levels

    def rounded(self, matrix: np.ndarray) -> np.ndarray:
        """The nearest values on the grid that fits a matrix."""
        return self.quantized(matrix).values

    def quantized(self, matrix: np.ndarray) -> BlockWeights:
        """A matrix rounded to the nearest levels of the grid that fits it."""
        blocks = self.split(matrix)
        scale, zero = self.fit(blocks)
        return BlockWeights(self, len(matrix), self.levels(blocks, scale, zero), scale, zero)


@dataclass(frozen=True)
class BlockWeights:
    """A quantized matrix: levels (blocks, block_size, columns), scales and zero points (blocks, 1, columns)."""

    grid: BlockGrid
    inner: int
    levels: np.ndarray
    scale: np.ndarray
    zero: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """The matrix that MatMulNBits computes with, (inner, columns)."""
        values: np.ndarray = (self.levels - self.zero) * self.scale
        return values.reshape(-1, values.shape[2])[: self.inner]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The weights as MatMulNBits stores them.

        `weight` (columns, blocks, bytes), `scales` (columns, blocks) and, unless the grid is symmetric, `zero_points`
        (columns, bytes).
        """
        arrays = {
            "weight": _packed(self.levels.transpose(2, 0, 1), self.grid.bits),
            "scales": np.ascontiguousarray(self.scale[:, 0].T),
        }
        if not self.grid.is_symmetric:
            arrays["zero_points"] = _packed(self.zero[:, 0].T, self.grid.bits)
        return arrays

    def matmul(self, node: ir.Node, accuracy_level: int) -> ir.Node:
        """The node MatMulNBits to replace a MatMul; its weights are inputs that no graph has yet."""
        name = f"{node.name}_Q{self.grid.bits}"
        weights = []
        for kind, array in self.arrays.items():
            tensor = ir.tensor(array, name=f"{name}_{kind}")
            weights.append(ir.Value(name=tensor.name, const_value=tensor))
        attributes = {
            "K": self.inner,
            "N": self.scale.shape[2],
            "bits": self.grid.bits,
            "block_size": self.grid.block_size,
            "accuracy_level": accuracy_level,
        }
        return ir.node("MatMulNBits", [node.inputs[0], *weights], attributes, domain=ORT_DOMAIN, name=name)


def _packed(levels: np.ndarray, bits: int) -> np.ndarray:
    """Levels packed into bytes along the last axis, the first in the lowest bits."""
    count = 8 // bits
    padding = [(0, 0)] * (levels.ndim - 1) + [(0, -levels.shape[-1] % count)]
    groups = np.pad(levels, padding).astype(np.uint8).reshape(*levels.shape[:-1], -1, count)
    shifts = np.arange(count, dtype=np.uint8) * np.uint8(bits)
    packed: np.ndarray = np.bitwise_or.reduce(groups << shifts, axis=-1)
    return packed


def channel_factors(inputs: np.ndarray, matrices: Sequence[np.ndarray], grid: BlockGrid) -> np.ndarray | None:
    """Find factors for the input channels of matrices after which rounding to the grid changes their products least.

    J. Lin, J. Tang, H. Tang, S. Yang, X. Dang, C. Gan, S. Han: AWQ, 2023: the mean magnitudes of the channels to a
    power, which is searched. The matrices (inner, columns) share the inputs (rows, inner).

    Returns: (inner,) to multiply the matrices by and divide the inputs by; None if no factors are better than 1.
    """
    # A channel that is always 0 must not get the factor 0, by which its inputs are divided.
    magnitudes = np.maximum(np.abs(inputs).mean(axis=0), 1e-4)
    rows = spread_rows(inputs, QUANTIZATION.compared_rows)
    matrix = spread_rows(np.concatenate(matrices, axis=1).T, QUANTIZATION.compared_columns).T
    exact = rows @ matrix
    best: np.ndarray | None = None
    least = _difference(rows @ grid.rounded(matrix), exact)
    for exponent in EXPONENTS:
        factors = magnitudes**exponent
        factors /= np.sqrt(factors.max() * factors.min())
        products = (rows / factors) @ grid.rounded(matrix * factors[:, np.newaxis])
        difference = _difference(products, exact)
        if difference < least:
            best, least = factors, difference
    return best


def spread_rows(rows: np.ndarray, limit: int) -> np.ndarray:
    """Select at most `limit` rows at even distances."""
    return rows[:: max(1, -(-len(rows) // limit))]


def _difference(products: np.ndarray, exact: np.ndarray) -> float:
    return float(np.square(products - exact).mean())


def fit_to_inputs(inputs: np.ndarray, matrix: np.ndarray, grid: BlockGrid) -> tuple[np.ndarray, np.ndarray]:
    """Find scales and zero points, (blocks, 1, columns), that change the products of each block least, as AWQ does."""
    blocks = grid.split(matrix)
    channels = grid.split(inputs.T)
    gram = channels @ channels.transpose(0, 2, 1)
    best = np.ones((len(blocks), 1, matrix.shape[1]), matrix.dtype)
    least = np.full(best.shape, np.inf)
    for share in SHARES:
        scale, zero = grid.fit(blocks, share)
        noise = (grid.levels(blocks, scale, zero) - zero) * scale - blocks
        change = (noise * (gram @ noise)).sum(axis=1, keepdims=True)
        better = change < least
        best = np.where(better, share, best)
        least = np.where(better, change, least)
    return grid.fit(blocks, best)


def nearest(inputs: np.ndarray, matrix: np.ndarray, grid: BlockGrid) -> BlockWeights:
    """Round each weight to the nearest level of a grid that fits the inputs (rows, inner)."""
    blocks = grid.split(matrix)
    scale, zero = fit_to_inputs(inputs, matrix, grid)
    return BlockWeights(grid, len(matrix), grid.levels(blocks, scale, zero), scale, zero)


def compensated(inputs: np.ndarray, matrix: np.ndarray, grid: BlockGrid) -> BlockWeights:
    """Round weights one input channel after the other; the channels that follow make up for each rounding error.

    E. Frantar, S. Ashkboos, T. Hoefler, D. Alistarh: GPTQ, 2023. The grid of a block is fitted when its turn comes.
    The inputs (rows, inner) are what the matrix (inner, columns) is multiplied with.
    """
    inner = len(matrix)
    rest = grid.split(matrix).reshape(-1, matrix.shape[1]).astype(np.float64)
    # The upper Cholesky factor of the inverse of the damped Hessian, in which padding and dead channels have 1.
    rows = inputs.astype(np.float64)
    products = rows.T @ rows
    products += np.diag(np.where(np.diag(products) == 0, 1, DAMPING * np.diag(products).mean()))
    hessian = np.eye(len(rest))
    hessian[:inner, :inner] = products
    factor: np.ndarray = np.linalg.cholesky(np.linalg.inv(hessian)).T
    padded = np.pad(inputs, ((0, 0), (0, len(rest) - inner)))
    levels, scales, zeros = np.empty_like(rest), [], []
    for start in range(0, len(rest), grid.block_size):
        block = slice(start, start + grid.block_size)
        scale, zero = fit_to_inputs(padded[:, block], rest[block], grid)
        errors = np.empty_like(rest[block])
        for index in range(start, start + grid.block_size):
            levels[index] = grid.levels(rest[index], scale[0, 0], zero[0, 0])
            rounded = (levels[index] - zero[0, 0]) * scale[0, 0]
            errors[index - start] = (rest[index] - rounded) / factor[index, index]
            rest[index : block.stop] -= np.outer(factor[index, index : block.stop], errors[index - start])
        rest[block.stop :] -= factor[block, block.stop :].T @ errors
        scales.append(scale)
        zeros.append(zero)
    scale = np.concatenate(scales).astype(matrix.dtype)
    return BlockWeights(grid, inner, levels.reshape(len(scale), -1, matrix.shape[1]), scale, np.concatenate(zeros))


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
