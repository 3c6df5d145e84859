"""Names, types and number of inputs and outputs, and work before and after the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import outputs, saved, step
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.structure.signature import ConvertInputOutputTypes, RemoveOutputs, RenameInputsOutputs
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def two_outputs() -> onnx.ModelProto:
    return made("g (float[2, 4] x, float[2, 4] z) => (float[2, 4] y, float[2, 4] s) { y = Relu (x)\n s = Add (y, z) }")


def test_inputs_and_outputs_are_renamed(tmp_path: object) -> None:
    model = RenameInputsOutputs(names={"x": "image", "y": "scores"})(two_outputs())
    assert [value.name for value in model.graph.input] == ["image", "z"]
    assert [value.name for value in model.graph.output] == ["scores", "s"]
    relu, total = run_once(io.save(model, tmp_path), {"image": X, "z": X})  # type: ignore[arg-type]
    np.testing.assert_array_equal(relu, np.maximum(X, 0))
    np.testing.assert_array_equal(total, np.maximum(X, 0) + X)


def test_unknown_and_taken_names_are_refused() -> None:
    with pytest.raises(Refused, match="no input or output 'w'"):
        RenameInputsOutputs(names={"w": "image"})(two_outputs())
    with pytest.raises(Refused, match="a value 'z' already"):
        RenameInputsOutputs(names={"x": "z"})(two_outputs())


def test_an_output_goes_with_the_inputs_that_only_it_needs() -> None:
    model = RemoveOutputs(outputs=["s"])(two_outputs())
    assert [node.op_type for node in model.graph.node] == ["Relu"]
    assert [value.name for value in model.graph.input] == ["x"]
    with pytest.raises(Refused, match="at least one output"):
        RemoveOutputs(outputs=["y", "s"])(two_outputs())


def test_types_of_inputs_and_outputs_are_converted(tmp_path: object) -> None:
    model = ConvertInputOutputTypes(types={"x": "float64", "y": "float16"})(two_outputs())
    assert "Cast" in [node.op_type for node in model.graph.node]
    feeds = {"x": X.astype(np.float64), "z": X}
    relu, total = run_once(io.save(model, tmp_path), feeds)  # type: ignore[arg-type]
    assert (relu.dtype, total.dtype) == (np.float16, np.float32)
    np.testing.assert_allclose(relu, np.maximum(X, 0), rtol=1e-3)
    same = MODELS["relu_only"]()
    assert ConvertInputOutputTypes(types={"x": "float32"})(same) is same


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_raw_images_become_the_input(tmp_path: Path, layout: str) -> None:
    model = MODELS["image_in"]()
    result = step(
        tmp_path, model, "prepend_preprocessing", image_layout=layout, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4]
    )
    assert result["outcome"] == "ok", result["message"]
    raw = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), np.uint8)
    mean, std = np.float32([0.5, 0.4, 0.3]).reshape(3, 1, 1), np.float32([0.2, 0.3, 0.4]).reshape(3, 1, 1)
    expected = outputs(model, tmp_path, {"image": (raw.astype(np.float32) / 255 - mean) / std})[0]
    given = np.ascontiguousarray(raw.transpose(0, 2, 3, 1)) if layout == "NHWC" else raw
    np.testing.assert_allclose(outputs(saved(result), tmp_path, {"image": given})[0], expected, rtol=1e-4, atol=1e-5)


def test_inputs_that_are_not_images_are_refused(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "prepend_preprocessing")["outcome"] == "refused"
    result = step(tmp_path, MODELS["image_in"](), "prepend_preprocessing", input="imag")
    assert "did you mean 'image'" in result["message"]


def test_an_image_that_is_an_output_too_is_refused(tmp_path: Path) -> None:
    graph = "g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] x, float[1, 3, 4, 4] y) { y = Relu (x) }"
    result = step(tmp_path, made(graph), "prepend_preprocessing")
    assert result["outcome"] == "refused", result
    assert "input 'x' is an output, too" in result["message"]


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "argmax"])
def test_postprocessing_becomes_part_of_the_graph(tmp_path: Path, kind: str) -> None:
    model = MODELS["gemm_mlp"]()
    feeds = next(synthetic_feeds(model))
    raw = outputs(model, tmp_path, feeds)[0]
    result = step(tmp_path, model, "append_postprocessing", kind=kind)
    assert result["outcome"] == "ok", result["message"]
    exp = np.exp(raw - raw.max(-1, keepdims=True))
    expected = {
        "softmax": exp / exp.sum(-1, keepdims=True),
        "sigmoid": 1 / (1 + np.exp(-raw)),
        "argmax": raw.argmax(-1),
    }[kind]
    np.testing.assert_allclose(outputs(saved(result), tmp_path, feeds)[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        "g (int64[2, 4] x) => (int64[2, 4] y) { y = Neg (x) }",
        "g (float[2, 4] x) => (seq(float[1, 4]) y) { y = SplitToSequence <axis = 0> (x) }",
    ],
    ids=["integers", "a sequence"],
)
def test_an_output_that_is_no_float_tensor_is_refused(tmp_path: Path, graph: str) -> None:
    result = step(tmp_path, made(graph), "append_postprocessing")
    assert result["outcome"] == "refused", result
    assert "output 'y' is not a float tensor" in result["message"]
