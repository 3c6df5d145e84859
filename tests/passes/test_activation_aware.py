"""AWQ and GPTQ beside their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.passes.quantize.activation_aware import (
    DAMPING,
    EXPONENTS,
    channel_factors,
    compensated,
    fit_to_inputs,
    nearest,
)
from autoopt.passes.quantize.block_grid import BlockGrid

INNER, COLUMNS = 48, 8
GRIDS = [BlockGrid(4, 16, True), BlockGrid(4, 16, False), BlockGrid(2, 32, False)]


def inputs() -> np.ndarray:
    """Correlated channels of different size."""
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((300, INNER)) @ rng.standard_normal((INNER, INNER))
    scaled: np.ndarray = (mixed * np.exp(rng.standard_normal(INNER))).astype(np.float32)
    return scaled


def matrix() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((INNER, COLUMNS)).astype(np.float32)


def change(weights: np.ndarray) -> float:
    return float(np.square(inputs() @ (weights - matrix())).sum())


@pytest.mark.parametrize("grid", GRIDS)
def test_factors_are_the_best_power_of_the_magnitudes(grid: BlockGrid) -> None:
    found = channel_factors(inputs(), [matrix()[:, :5], matrix()[:, 5:]], grid)
    assert found is not None
    changes = {}
    for exponent in EXPONENTS:
        factors = np.abs(inputs()).mean(axis=0) ** exponent
        scaled = grid.rounded(matrix() * factors[:, None] / np.sqrt(factors.min() * factors.max()))
        changes[change(scaled / factors[:, None] * np.sqrt(factors.min() * factors.max()))] = factors
    ratio = found / changes[min(changes)]
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-4)


def test_no_factors_where_none_help() -> None:
    even = np.ones((4, INNER), np.float32)
    assert channel_factors(even, [matrix()], GRIDS[0]) is None


@pytest.mark.parametrize("grid", GRIDS)
def test_each_step_lowers_the_change_of_the_products(grid: BlockGrid) -> None:
    by_range = change(nearest(inputs(), matrix(), grid).values)
    assert by_range < change(grid.rounded(matrix()))
    assert change(compensated(inputs(), matrix(), grid).values) < by_range


@pytest.mark.parametrize("grid", GRIDS)
def test_compensation_equals_the_removal_of_one_channel_after_the_other(grid: BlockGrid) -> None:
    """The same without a Cholesky factor: the inverse of the Hessian of the channels left, each time anew."""
    hessian = inputs().T.astype(np.float64) @ inputs()
    hessian += DAMPING * np.diag(hessian).mean() * np.eye(INNER)
    rest = matrix().astype(np.float64)
    values = np.zeros_like(rest)
    for index in range(INNER):
        if index % grid.block_size == 0:
            block = slice(index, index + grid.block_size)
            scale, zero = fit_to_inputs(inputs()[:, block], rest[block], grid)
        values[index] = (grid.levels(rest[index], scale[0, 0], zero[0, 0]) - zero[0, 0]) * scale[0, 0]
        inverse = np.linalg.inv(hessian[index:, index:])
        rest[index:] -= np.outer(inverse[:, 0], (rest[index] - values[index]) / inverse[0, 0])
    np.testing.assert_allclose(compensated(inputs(), matrix(), grid).values, values, atol=1e-4)
