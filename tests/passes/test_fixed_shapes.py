"""Models made for fixed sizes, given or those of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, steps
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.runner import run
from autoopt.passes.shape.fixed_shapes import FixDimParam, FixInputShape, SpecializeInputs


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


def by_rate() -> onnx.ModelProto:
    """A model with a branch for each of two rates."""
    return made(
        """g (float[N, T] x, int64 sr) => (float[N, T] y) {
            fast = Equal (sr, rate)
            y = If (fast) <
                then_branch = a () => (float[N, T] p) { p = Mul (x, two) },
                else_branch = b () => (float[N, T] q) { q = Neg (x) }
            >
        }""",
        rate=np.array(16000, np.int64),
        two=np.array(2, np.float32),
    )


def test_a_constant_input_folds_what_depends_on_it(tmp_path: Path) -> None:
    params = {"values": {"sr": 16000}, "shapes": {"x": [None, 4]}}
    (result,) = steps(tmp_path, by_rate(), [("specialize_inputs", params)])
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same")
    after = saved(result)
    assert ([value.name for value in after.graph.input], ops(after)) == (["x"], ["Mul"])
    assert [dim.dim_value for dim in after.graph.input[0].type.tensor_type.shape.dim] == [0, 4]
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(outputs(after, tmp_path, {"x": x})[0], 2 * x)


@pytest.mark.parametrize(("rate", "left"), [([16000] * 8, ["x"]), ([16000] * 7 + [8000], ["x", "sr"])])
def test_without_parameters_the_calibration_data_give_them(tmp_path: Path, rate: list[int], left: list[str]) -> None:
    np.savez(tmp_path / "data.npz", x=np.arange(32, dtype=np.float32).reshape(8, 4), sr=np.array(rate))
    payload: dict[str, Any] = {
        "model": {"path": str(io.save(by_rate(), tmp_path / "source"))},
        "steps": [{"pass": "specialize_inputs"}],
        "output": str(tmp_path / "out"),
        "data": str(tmp_path / "data.npz"),
    }
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert result["params"]["shapes"] == {"x": [1, 4]}
    assert [value.name for value in saved(result).graph.input] == left


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "needs values or shapes"),
        ({"values": {"z": 1}}, "no input 'z'; it has x, sr"),
        ({"values": {"sr": 1, "x": [[1.0]]}}, "no input would be left"),
        ({"values": {"sr": [1, 2]}}, "value of shape"),
        ({"values": {"sr": "fast"}}, "cannot have the value given"),
        ({"shapes": {"x": [1, 2, 3]}}, "cannot have the shape"),
    ],
)
def test_what_the_model_does_not_take_is_refused(tmp_path: Path, params: dict[str, Any], reason: str) -> None:
    (result,) = steps(tmp_path, by_rate(), [("specialize_inputs", params)])
    assert result["outcome"] == "refused"
    assert reason in result["message"]


def test_the_pass_runs_in_this_process_too() -> None:
    after = SpecializeInputs(values={"sr": 8000})(by_rate())
    assert ops(after) == ["Neg"]
    with pytest.raises(Refused, match="no input 'a'"):
        SpecializeInputs(shapes={"a": [1]})(by_rate())
