"""The float values of quantized weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from bench import outputs
from micro_models import made, normal
from onnx import numpy_helper

from autoopt.passes.onnx_tools.graphs import attribute_values
from autoopt.passes.quantize.stored_weights import block_matrix, dequantized, unpacked
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_are_read_as_the_runtime_reads_them(bits: int, symmetric: bool, tmp_path: Path) -> None:
    model = made("g (float[N, 80] x) => (float[N, 6] y) { y = MatMul (x, w) }", w=normal(80, 6) + np.float32(1))
    quantized = WeightOnlyQuantization(bits=bits, is_symmetric=symmetric, block_size=32).run(ir.from_proto(model))
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
