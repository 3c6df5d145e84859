"""Functions and operators replaced with their bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step
from micro_models import made

X = np.array([[-2, -0.5, 0], [0.5, 1.5, 3]], np.float32)
FUNCTIONS = """
<domain: "local", opset_import: ["": 17]> leaky <slope: float = 0.5> (v) => (w) {
 w = LeakyRelu <alpha: float = @slope> (v) }
<domain: "local", opset_import: ["": 17, "local": 1]> outer (v) => (w) { w = local.leaky (v) }
"""


def model_with(text: str) -> onnx.ModelProto:
    graph = f"g (float[2, 3] x) => (float[2, 3] y) {{ {text} }}"
    if "local." in text:
        return made(f"{graph}\n{FUNCTIONS}", domains=', "local": 1')
    return made(graph, opset=20, ir=9)


@pytest.mark.parametrize("version", [15, 17])
@pytest.mark.parametrize("call", ["leaky (x)", "leaky <slope = 0.25> (x)", "outer (x)"])
def test_calls_keep_the_defaults_of_a_function(tmp_path: Path, call: str, version: int) -> None:
    """Also where the function is of an earlier version of the operators than the model."""
    model = model_with(f"h = Mul (x, two)\n y = local.{call}".replace("(x)", "(h)"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    for function in model.functions:
        function.opset_import[0].version = version
    expected = outputs(model, tmp_path, {"x": X})[0]
    for name in ("opset_conversion", "transformer_fusion", "float32"):
        assert step(tmp_path, model, name)["outcome"] in ("ok", "unchanged")
    result = step(tmp_path, model, "inline_functions")
    assert ops(saved(result)) == ["Mul", "LeakyRelu"]
    np.testing.assert_array_equal(outputs(saved(result), tmp_path, {"x": X})[0], expected)


@pytest.mark.parametrize("op", ["Celu", "ThresholdedRelu", "Gelu", "HardSwish", "Mish"])
def test_operators_keep_their_defaults(tmp_path: Path, op: str) -> None:
    model = model_with(f"y = {op} (x)")
    expected = outputs(model, tmp_path, {"x": X})[0]
    result = step(tmp_path, model, "expand_functions", ops=[op])
    assert op not in ops(saved(result))
    np.testing.assert_allclose(outputs(saved(result), tmp_path, {"x": X})[0], expected, rtol=1e-6, atol=1e-6)
