"""The work of layers, as far as the sizes of values tell it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from autoopt.model.work import OPEN_SIZE, layer_work


def made(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A model with float weights of these shapes."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name, shape in shapes.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    return model


def test_a_convolution_uses_its_weights_at_each_place_and_a_product_once() -> None:
    model = made(
        "g (float[N, 3, 8, 8] x) => (float[N, 10] y) { c = Conv (x, w)\n p = GlobalAveragePool (c)\n"
        " f = Flatten (p)\n y = Gemm (f, v) }",
        w=(16, 3, 3, 3),
        v=(16, 10),
    )
    assert layer_work(model) == {"Conv": 6 * 6 * 16 * 3 * 3 * 3, "Gemm": 16 * 10}


def test_a_transposed_convolution_uses_its_weights_at_each_place_of_its_input() -> None:
    model = made("g (float[1, 4, 5, 5] x) => (float[1, 2, 6, 6] y) { y = ConvTranspose (x, w) }", w=(4, 2, 2, 2))
    assert layer_work(model) == {"ConvTranspose": 25 * 4 * 2 * 2 * 2}


def test_a_recurrent_layer_uses_its_weights_at_each_step() -> None:
    model = made(
        "g (float[7, 1, 4] x) => (float[7, 1, 1, 6] y) { y = LSTM <hidden_size = 6> (x, w, r) }",
        w=(1, 24, 4),
        r=(1, 24, 6),
    )
    assert layer_work(model) == {"LSTM": 7 * (24 * 4 + 24 * 6)}


@pytest.mark.parametrize(("size", "uses"), [("9", 9), ("L", OPEN_SIZE)])
def test_products_count_by_positions_and_those_of_two_values_not_at_all(size: str, uses: int) -> None:
    model = made(
        f"g (float[N, {size}, 4] x) => (float[N, {size}, {size}] y) {{ a = MatMul (x, w)\n t = Transpose"
        " <perm = [0, 2, 1]> (a)\n y = MatMul (a, t) }",
        w=(4, 5),
    )
    assert layer_work(model) == {"MatMul": uses * 4 * 5}


def test_weights_in_constants_and_in_integers_count() -> None:
    model = made(
        "g (float[1, 40] x, float s) => (float[1, 2] z) { y = MatMul (x, w)\n d = DequantizeLinear (q, s)\n"
        " z = MatMul (y, d) }"
    )
    weights = numpy_helper.from_array(np.ones((40, 50), np.float32))
    constant = onnx.helper.make_node("Constant", [], ["w"], value=weights)
    model.graph.node.insert(0, constant)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((50, 2), np.int8), "q"))
    assert layer_work(model) == {"MatMul": 40 * 50 + 50 * 2}


def test_nothing_is_known_where_the_size_at_a_convolution_is_not() -> None:
    model = made(
        "g (float[1, 3, 8, 8] x, int64[4] shape) => (float[A, B, C, D] y) { r = Reshape (x, shape)\n y = Conv (r, w) }",
        w=(16, 3, 3, 3),
    )
    assert layer_work(model) == {}


def test_counting_leaves_the_model_as_it_was() -> None:
    model = made("g (float[N, 2000] x) => (float[N, 3] y) { y = MatMul (x, w) }", w=(2000, 3))
    before = model.SerializeToString()
    assert layer_work(model) == {"MatMul": 6000}
    assert model.SerializeToString() == before
