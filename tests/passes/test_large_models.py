"""Models above 2 GiB in tools that load or serialize them. Here, a few kilobytes count as large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import builders
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from autoopt.model.tensors import weight_bytes
from autoopt.passes.base import Pass, Refused
from autoopt.passes.cleanup.graph_cleanup import ConstantFolding
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, OnnxScriptOptimize, OnnxSlim, Simplify
from autoopt.passes.convert.conversions import ExpandFunctions, InlineFunctions, OpsetConversion
from autoopt.passes.onnx_tools import graphs, large_models
from autoopt.passes.onnx_tools.large_models import call_without_large_weights, refuse_invalid
from autoopt.passes.precision.conversion import Converter
from autoopt.passes.precision.half_floats import Float16
from autoopt.passes.shape.inference import ShapeInference


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", 512)
    monkeypatch.setattr(large_models, "BYTES_THAT_STAY", 256)


def outputs(model: Any) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {}
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 for size in value.shape]
        feeds[value.name] = np.random.default_rng(0).standard_normal(shape, np.float32)
    return list(session.run(None, feeds))


def with_function() -> Any:
    """An MLP behind a function of its own."""
    model = builders.mlp()
    imports = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    model.functions.append(helper.make_function("own", "Clip0", ["a"], ["b"], body, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    (old,) = model.graph.input
    name = old.name
    for node in model.graph.node:
        graphs.replace_items(node.input, ["clipped" if value == name else value for value in node.input])
    model.graph.node.insert(0, helper.make_node("Clip0", [name], ["clipped"], domain="own"))
    return model


@pytest.mark.parametrize(
    ("pass_", "make"),
    [
        (ShapeInference(), builders.cnn),
        (OpsetConversion(target_opset=21), builders.cnn),
        (OpsetConversion(target_opset=21, converter="onnx"), builders.cnn),
        (OnnxSlim(), builders.cnn),
        (OnnxOptimizer(), builders.mlp),
        (Simplify(engine="onnxscript"), builders.cnn),
        (ConstantFolding(), builders.cnn),
        (OnnxScriptOptimize(), builders.cnn),
        (InlineFunctions(inliner="onnx"), with_function),
        (ExpandFunctions(ops=["Relu"]), builders.mlp),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Pass) else None,
)
def test_a_large_model_keeps_its_weights_and_its_meaning(pass_: Pass, make: Callable[[], Any]) -> None:
    source = make()
    before = outputs(source)
    result = pass_.run(make()) or source
    onnx.checker.check_model(result, full_check=True)
    assert [value.name for value in result.graph.input] == [value.name for value in source.graph.input]
    for actual, expected in zip(outputs(result), before, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("impl", ["occ", "ort"])
def test_float16_infers_the_shapes_of_a_large_model_without_its_weights(
    impl: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def infer_shapes(model: Any, *args: Any, **options: Any) -> Any:
        sizes.append(weight_bytes(model))
        return real(model, *args, **options)

    real = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer_shapes)
    monkeypatch.setattr("onnxruntime.transformers.float16.infer_shapes", infer_shapes)
    result = Float16(impl=impl).run(builders.cnn())
    assert sizes
    assert max(sizes) <= 256
    assert result is not None
    onnx.checker.check_model(result, full_check=True)
    assert weight_bytes(result) < 0.6 * weight_bytes(builders.cnn())
    np.testing.assert_allclose(outputs(result)[0], outputs(builders.cnn())[0], rtol=1e-2, atol=1e-2)


def test_a_tool_sees_no_large_weights_and_the_model_stays_as_it_was() -> None:
    model = builders.cnn()
    before = model.SerializeToString(deterministic=True)
    seen = []

    def tool(light: Any) -> Any:
        seen.append(weight_bytes(light))
        del light.graph.node[-1]
        return light

    result = call_without_large_weights(tool, model)
    assert seen[0] <= 256
    assert model.SerializeToString(deterministic=True) == before
    assert {tensor.name for tensor in result.graph.initializer} < {tensor.name for tensor in model.graph.initializer}
    assert call_without_large_weights(lambda light: None, model) is None


def test_an_invalid_model_is_refused_with_the_reason() -> None:
    model = builders.mlp()
    refuse_invalid(model, "unused")
    model.graph.node[1].input[0] = "nowhere"
    with pytest.raises(Refused, match="the tool failed: "):
        refuse_invalid(model, "the tool failed")


def test_large_weights_elsewhere_are_refused() -> None:
    weight = numpy_helper.from_array(np.zeros(1000, np.float32), "w")
    node = helper.make_node("Constant", [], ["y"], value=weight)
    model = builders.model([node], [], [builders.tensor("y", [1000])], {})
    with pytest.raises(Refused, match="apply lift_constants first"):
        call_without_large_weights(lambda light: light, model)
