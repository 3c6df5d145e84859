"""Weights in blocks of few bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from bench import outputs
from hypothesis import given
from hypothesis import strategies as st
from micro_models import made, normal

from autoopt.passes.onnx_tools.graphs import replace_items
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.passes.quantize.block_grid import BlockGrid, BlockWeights
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization

INNER, COLUMNS = 80, 6
PRODUCT = f"g (float[N, {INNER}] x) => (float[N, {COLUMNS}] y) {{ [p] y = MatMul (x, w) }}"
UNIT = {"x": np.eye(INNER, dtype=np.float32)}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("shift", [0, 3])
def test_rounds_like_onnxruntime(tmp_path: Path, bits: int, symmetric: bool, shift: float) -> None:
    weight = normal(INNER, COLUMNS) + np.float32(shift)
    library = WeightOnlyQuantization(bits=bits, is_symmetric=symmetric).run(ir.from_proto(made(PRODUCT, w=weight)))
    rounded = BlockGrid(bits, 32, symmetric).rounded(weight)
    np.testing.assert_allclose(rounded, outputs(library, tmp_path, UNIT)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_operator_computes_with_the_stored_levels(tmp_path: Path, bits: int, symmetric: bool) -> None:
    grid = BlockGrid(bits, 16, symmetric)
    blocks = grid.split(normal(INNER, COLUMNS))
    scale, zero = grid.fit(blocks, 0.8)
    weights = BlockWeights(grid, INNER, grid.levels(blocks, scale, zero), scale, zero)
    model = made(PRODUCT, w=normal(INNER, COLUMNS))
    node, tensors = weights.matmul(model.graph.node[0], 0)
    replace_items(model.graph.node, [node])
    replace_items(model.graph.initializer, tensors)
    import_ort_domain(model)
    np.testing.assert_allclose(outputs(model, tmp_path, UNIT)[0], weights.values, rtol=1e-5, atol=1e-6)


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
