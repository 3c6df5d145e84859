"""AWQ and GPTQ: matrices rounded to blocks of few bits so that their products with real inputs change least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from autoopt.passes.quantize.block_grid import BlockGrid, BlockWeights

EXPONENTS: Final = tuple(step / 20 for step in range(1, 20))
"""Exponents of the magnitudes of channels that AWQ tries."""
SHARES: Final = tuple(1 - step / 20 for step in range(11))
"""Shares of a block's range that AWQ tries."""
COMPARED_ROWS: Final = 512
COMPARED_COLUMNS: Final = 2048
"""Products that AWQ compares at most for one value."""
DAMPING: Final = 0.01
"""Share of the mean of the Hessian's diagonal that GPTQ adds to it."""


def channel_factors(inputs: np.ndarray, matrices: Sequence[np.ndarray], grid: BlockGrid) -> np.ndarray | None:
    """Find factors for the input channels of matrices after which rounding to the grid changes their products least.

    J. Lin, J. Tang, H. Tang, S. Yang, X. Dang, C. Gan, S. Han: AWQ, 2023: the mean magnitudes of the channels to a
    power, which is searched. The matrices (inner, columns) share the inputs (rows, inner).

    Returns: (inner,) to multiply the matrices by and divide the inputs by; None if no factors are better than 1.
    """
    # A channel that is always 0 must not get the factor 0, by which its inputs are divided.
    magnitudes = np.maximum(np.abs(inputs).mean(axis=0), 1e-4)
    rows = spread_rows(inputs, COMPARED_ROWS)
    matrix = spread_rows(np.concatenate(matrices, axis=1).T, COMPARED_COLUMNS).T
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
    factor = _inverse_factor(inputs, len(rest))
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


def _inverse_factor(inputs: np.ndarray, size: int) -> np.ndarray:
    """The upper Cholesky factor of the inverse of the damped Hessian, (size, size); padding and dead channels get 1."""
    rows = inputs.astype(np.float64)
    hessian = rows.T @ rows
    hessian += np.diag(np.where(np.diag(hessian) == 0, 1, DAMPING * np.diag(hessian).mean()))
    padded = np.eye(size)
    padded[: len(hessian), : len(hessian)] = hessian
    factor: np.ndarray = np.linalg.cholesky(np.linalg.inv(padded)).T
    return factor
