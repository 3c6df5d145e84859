"""Open dimensions made fixed."""

from __future__ import annotations

import onnx
import pytest
from micro_models import MODELS, made

from autoopt.passes.base import Refused
from autoopt.passes.shape.fixed_shapes import FixDimParam, FixInputShape


def test_fixed_shapes_reach_the_outputs_and_inner_values() -> None:
    model = onnx.shape_inference.infer_shapes(MODELS["small_cnn"]())
    after = FixInputShape(shapes={"x": [3, 1, 8, 8]})(model)
    assert [d.dim_value for d in after.graph.output[0].type.tensor_type.shape.dim] == [3, 10]
    assert not any(d.dim_param for v in after.graph.value_info for d in v.type.tensor_type.shape.dim)


def text_model() -> onnx.ModelProto:
    return made("""g (int64[B, S] ids, int64[B, S] mask, float[B, R, 4] x) => (int64[B, S] y, float[B, R, 4] z) {
        y = Mul (ids, mask)\n z = Relu (x) }""")


def test_a_named_dimension_gets_the_size_of_the_input_with_a_shape_everywhere() -> None:
    after = FixInputShape(shapes={"mask": [2, 16]}, open_dims=5)(text_model())
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*after.graph.input, *after.graph.output)]
    assert shapes == [[2, 16], [2, 16], [2, 5, 4], [2, 16], [2, 5, 4]]
    with pytest.raises(Refused, match=r"'mask' cannot have the shape \[2, 16\]; the model has \[2,8\]"):
        FixInputShape(shapes={"mask": [2, 16], "ids": [2, 8]})(text_model())


@pytest.mark.parametrize("pass_", [FixInputShape(), FixDimParam()], ids=lambda pass_: type(pass_).__name__)
def test_tensors_of_a_sequence_keep_their_open_sizes(pass_: FixInputShape | FixDimParam) -> None:
    model = made("g (seq(float[B]) x) => (float[N] y) { y = ConcatFromSequence <axis = 0> (x) }")
    assert pass_(model) is model


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"z": [1]}, "no input 'z'; it has x"),
        ({"x": [1, 1]}, "cannot have the shape"),
        ({"x": [1, 2, 8, 8]}, r"the model has \[N,1,8,8\]"),
    ],
)
def test_impossible_shapes_are_refused(shapes: dict[str, list[int]], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        FixInputShape(shapes=shapes)(MODELS["small_cnn"]())


def test_sizes_that_stand_for_unknown_ones_do_not_get_one_size_together() -> None:
    model = MODELS["relu_only"]()
    unknown = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [-1, 3, "?", "?"])
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.CopyFrom(unknown)
    after = FixInputShape(shapes={model.graph.input[0].name: [1, 3, 4, 8]})(model)
    assert [d.dim_value for d in after.graph.output[0].type.tensor_type.shape.dim] == [1, 3, 4, 8]
