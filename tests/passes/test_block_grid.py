"""Weights in blocks of few bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import outputs
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
    library = WeightOnlyQuantization(bits=bits, is_symmetric=symmetric).run(made(PRODUCT, w=weight))
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
