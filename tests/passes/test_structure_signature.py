"""Names, types and number of inputs and outputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.structure.signature import ConvertInputOutputTypes, RemoveOutputs, RenameInputsOutputs
from autoopt.passes.verification.equivalence import run_once

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
