"""Weights in blocks of few bits as MatMulNBits stores them: scales, zero points and levels in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto


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

    def matmul(self, node: NodeProto, accuracy_level: int) -> tuple[NodeProto, list[TensorProto]]:
        """The node MatMulNBits that replaces a MatMul, and its weights."""
        name = f"{node.name}_Q{self.grid.bits}"
        tensors = [numpy_helper.from_array(array, f"{name}_{kind}") for kind, array in self.arrays.items()]
        quantized = helper.make_node(
            "MatMulNBits",
            [node.input[0], *(tensor.name for tensor in tensors)],
            list(node.output),
            name=name,
            domain=ORT_DOMAIN,
            K=self.inner,
            N=self.scale.shape[2],
            bits=self.grid.bits,
            block_size=self.grid.block_size,
            accuracy_level=accuracy_level,
        )
        return quantized, tensors


def _packed(levels: np.ndarray, bits: int) -> np.ndarray:
    """Levels packed into bytes along the last axis, the first in the lowest bits."""
    count = 8 // bits
    padding = [(0, 0)] * (levels.ndim - 1) + [(0, -levels.shape[-1] % count)]
    groups = np.pad(levels, padding).astype(np.uint8).reshape(*levels.shape[:-1], -1, count)
    shifts = np.arange(count, dtype=np.uint8) * np.uint8(bits)
    packed: np.ndarray = np.bitwise_or.reduce(groups << shifts, axis=-1)
    return packed
