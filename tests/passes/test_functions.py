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


@pytest.mark.parametrize("inliner", ["onnx", "onnx-ir"])
@pytest.mark.parametrize("call", ["leaky (x)", "leaky <slope = 0.25> (x)", "outer (x)"])
def test_calls_keep_the_defaults_of_a_function(tmp_path: Path, call: str, inliner: str) -> None:
    model = model_with(f"y = local.{call}")
    expected = outputs(model, tmp_path, {"x": X})[0]
    result = step(tmp_path, model, "inline_functions", inliner=inliner)
    assert ops(saved(result)) == ["LeakyRelu"]
    np.testing.assert_array_equal(outputs(saved(result), tmp_path, {"x": X})[0], expected)


@pytest.mark.parametrize("op", ["Celu", "ThresholdedRelu", "Gelu", "HardSwish", "Mish"])
def test_operators_keep_their_defaults(tmp_path: Path, op: str) -> None:
    model = model_with(f"y = {op} (x)")
    expected = outputs(model, tmp_path, {"x": X})[0]
    result = step(tmp_path, model, "expand_functions", ops=[op])
    assert op not in ops(saved(result))
    np.testing.assert_allclose(outputs(saved(result), tmp_path, {"x": X})[0], expected, rtol=1e-6, atol=1e-6)
