"""Quantized weights in numpy; AWQ and GPTQ beside their formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from bench import outputs
from hypothesis import given
from hypothesis import strategies as st
from micro_models import made, normal
from onnx import numpy_helper
from onnx_ir import convenience

from autoopt.passes.onnx_tools.graphs import attribute_values
from autoopt.passes.onnx_tools.opsets import with_ort_domain
from autoopt.passes.quantize.block_weights import (
    DAMPING,
    EXPONENTS,
    BlockGrid,
    BlockWeights,
    block_matrix,
    channel_factors,
    compensated,
    dequantized,
    fit_to_inputs,
    nearest,
    unpacked,
)
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization

INNER, COLUMNS = 80, 6
PRODUCT = f"g (float[N, {INNER}] x) => (float[N, {COLUMNS}] y) {{ [p] y = MatMul (x, w) }}"
UNIT = {"x": np.eye(INNER, dtype=np.float32)}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("shift", [0, 3])
def test_rounds_like_onnxruntime(tmp_path: Path, bits: int, symmetric: bool, shift: float) -> None:
    weight = normal(INNER, COLUMNS) + np.float32(shift)
    library = WeightOnlyQuantization(bits=bits, is_symmetric=symmetric)(made(PRODUCT, w=weight))
    rounded = BlockGrid(bits, 32, symmetric).rounded(weight)
    np.testing.assert_allclose(rounded, outputs(library, tmp_path, UNIT)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_operator_computes_with_the_stored_levels(tmp_path: Path, bits: int, symmetric: bool) -> None:
    grid = BlockGrid(bits, 16, symmetric)
    blocks = grid.split(normal(INNER, COLUMNS))
    scale, zero = grid.fit(blocks, 0.8)
    weights = BlockWeights(grid, INNER, grid.levels(blocks, scale, zero), scale, zero)
    model = ir.from_proto(made(PRODUCT, w=normal(INNER, COLUMNS)))
    product = model.graph[0]
    node = weights.matmul(product, 0)
    for value in node.inputs[1:]:
        model.graph.register_initializer(value)
    convenience.replace_nodes_and_values(model.graph, product, [product], [node], product.outputs, node.outputs)
    np.testing.assert_allclose(
        outputs(ir.to_proto(with_ort_domain(model)), tmp_path, UNIT)[0], weights.values, rtol=1e-5, atol=1e-6
    )


GRIDS = st.builds(BlockGrid, st.sampled_from([2, 4, 8]), st.sampled_from([4, 16]), st.booleans())
MATRICES = st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(0, 5)).map(
    lambda sizes: normal(*sizes[:2], seed=sizes[2])
)


@given(GRIDS, MATRICES)
def test_blocks_hold_the_matrix_and_zeros_behind_it(grid: BlockGrid, matrix: np.ndarray) -> None:
    blocks = grid.split(matrix)
    assert blocks.shape[1:] == (grid.block_size, matrix.shape[1])
    rows = blocks.reshape(-1, matrix.shape[1])
    np.testing.assert_array_equal(rows[: len(matrix)], matrix)
    assert not rows[len(matrix) :].any()


@given(GRIDS, MATRICES)
def test_no_value_is_moved_further_than_a_step_of_its_block(grid: BlockGrid, matrix: np.ndarray) -> None:
    scale, _ = grid.fit(grid.split(matrix))
    steps = np.repeat(np.abs(scale), grid.block_size, axis=1).reshape(-1, matrix.shape[1])[: len(matrix)]
    assert np.all(np.abs(grid.rounded(matrix) - matrix) <= steps * 1.001)


@given(GRIDS, MATRICES)
def test_levels_stay_within_their_bits_and_zero_is_exact(grid: BlockGrid, matrix: np.ndarray) -> None:
    blocks = grid.split(matrix)
    scale, zero = grid.fit(blocks, 0.5)
    levels = grid.levels(blocks, scale, zero)
    assert levels.min() >= 0
    assert levels.max() <= grid.highest
    np.testing.assert_array_equal(grid.levels(np.zeros_like(blocks), scale, zero), np.broadcast_to(zero, blocks.shape))


@given(MATRICES)
def test_more_bits_come_closer(matrix: np.ndarray) -> None:
    errors = [float(np.square(BlockGrid(bits, 16, False).rounded(matrix) - matrix).sum()) for bits in (2, 4, 8)]
    assert errors[0] >= errors[1] >= errors[2]


def test_a_block_of_zeros_stays_zero() -> None:
    zeros = np.zeros((16, 2), np.float32)
    for symmetric in (True, False):
        np.testing.assert_array_equal(BlockGrid(4, 16, symmetric).rounded(zeros), zeros)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_are_read_as_the_runtime_reads_them(bits: int, symmetric: bool, tmp_path: Path) -> None:
    model = made("g (float[N, 80] x) => (float[N, 6] y) { y = MatMul (x, w) }", w=normal(80, 6) + np.float32(1))
    quantized = WeightOnlyQuantization(bits=bits, is_symmetric=symmetric, block_size=32)(model)
    node = quantized.graph.node[0]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    levels, scales, *zeros = (constants[name] for name in node.input[1:])
    matrix = block_matrix(levels, scales, zeros[0] if zeros else None, attribute_values(node))
    expected = outputs(quantized, tmp_path, {"x": np.eye(80, dtype=np.float32)})[0]
    np.testing.assert_allclose(matrix, expected, rtol=1e-5, atol=1e-6)


def test_scales_belong_to_all_values_to_channels_or_to_blocks() -> None:
    levels = np.arange(12, dtype=np.uint8).reshape(2, 6)
    one, two = np.float32([0.5]), np.float32([0.5, 2])
    np.testing.assert_array_equal(dequantized(levels, one, np.uint8([3])), (levels - 3.0) / 2)
    np.testing.assert_array_equal(dequantized(levels, two, axis=0), levels * np.float32([[0.5], [2]]))
    blocks = np.float32([[1, 2], [3, 4]])
    expected = levels * np.float32([[1, 1, 1, 1, 2, 2], [3, 3, 3, 3, 4, 4]])
    np.testing.assert_array_equal(dequantized(levels, blocks, axis=1, block_size=4), expected)


def test_the_first_value_of_a_byte_is_in_its_lowest_bits() -> None:
    assert unpacked(np.uint8([0x21, 0x03]), 4, 3).tolist() == [1, 2, 3]
    assert unpacked(np.uint8([0b11100100]), 2, 4).tolist() == [0, 1, 2, 3]


ROWS, WIDTH = 48, 8
COMPARED_GRIDS = [BlockGrid(4, 16, True), BlockGrid(4, 16, False), BlockGrid(2, 32, False)]


def inputs() -> np.ndarray:
    """Correlated channels of different size."""
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((300, ROWS)) @ rng.standard_normal((ROWS, ROWS))
    scaled: np.ndarray = (mixed * np.exp(rng.standard_normal(ROWS))).astype(np.float32)
    return scaled


def matrix() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)


def change(weights: np.ndarray) -> float:
    return float(np.square(inputs() @ (weights - matrix())).sum())


@pytest.mark.parametrize("grid", COMPARED_GRIDS)
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
    even = np.ones((4, ROWS), np.float32)
    assert channel_factors(even, [matrix()], COMPARED_GRIDS[0]) is None


@pytest.mark.parametrize("grid", COMPARED_GRIDS)
def test_each_step_lowers_the_change_of_the_products(grid: BlockGrid) -> None:
    by_range = change(nearest(inputs(), matrix(), grid).values)
    assert by_range < change(grid.rounded(matrix()))
    assert change(compensated(inputs(), matrix(), grid).values) < by_range


@pytest.mark.parametrize("grid", COMPARED_GRIDS)
def test_compensation_equals_the_removal_of_one_channel_after_the_other(grid: BlockGrid) -> None:
    """The same without a Cholesky factor: the inverse of the Hessian of the channels left, each time anew."""
    hessian = inputs().T.astype(np.float64) @ inputs()
    hessian += DAMPING * np.diag(hessian).mean() * np.eye(ROWS)
    rest = matrix().astype(np.float64)
    values = np.zeros_like(rest)
    for index in range(ROWS):
        if index % grid.block_size == 0:
            block = slice(index, index + grid.block_size)
            scale, zero = fit_to_inputs(inputs()[:, block], rest[block], grid)
        values[index] = (grid.levels(rest[index], scale[0, 0], zero[0, 0]) - zero[0, 0]) * scale[0, 0]
        inverse = np.linalg.inv(hessian[index:, index:])
        rest[index:] -= np.outer(inverse[:, 0], (rest[index] - values[index]) / inverse[0, 0])
    np.testing.assert_allclose(compensated(inputs(), matrix(), grid).values, values, atol=1e-4)
