"""Models above 2 GiB in tools that load or serialize them. Here, a few kilobytes count as large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from autoopt.model import io
from autoopt.model.tensors import weight_bytes
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.lifecycle import run_on_form
from autoopt.passes.cleanup.graph_cleanup import ConstantFolding
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, Simplify
from autoopt.passes.convert.conversions import ExpandFunctions, InlineFunctions, OpsetConversion
from autoopt.passes.onnx_tools import graphs, large_models
from autoopt.passes.onnx_tools.large_models import (
    call_on_references,
    call_without_large_weights,
    call_without_weights,
    refuse_invalid,
)
from autoopt.passes.precision.conversion import Converter
from autoopt.passes.precision.half_floats import Float16
from autoopt.passes.shape.inference import ShapeInference


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", 512)
    monkeypatch.setattr(large_models, "SHAPE_BYTES", 128)


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
        (OnnxOptimizer(), builders.mlp),
        (Simplify(engine="onnxscript"), builders.cnn),
        (ConstantFolding(), builders.cnn),
        (Simplify(engine="onnxscript", fuse=False), builders.cnn),
        (InlineFunctions(), with_function),
        (ExpandFunctions(ops=["Relu"]), builders.mlp),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Pass) else None,
)
def test_a_large_model_keeps_its_weights_and_its_meaning(pass_: Pass, make: Callable[[], Any]) -> None:
    source = make()
    before = outputs(source)
    result: Any = run_on_form(pass_, make()) or source
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


def test_a_tool_for_structure_gets_weights_as_inputs_and_they_return_to_their_places() -> None:
    model = builders.cnn()
    names = [tensor.name for tensor in model.graph.initializer]
    seen = []

    def tool(light: Any) -> Any:
        seen.append([tensor.name for tensor in light.graph.initializer])
        return light

    result = call_without_weights(tool, model)
    assert len(seen[0]) < len(names)
    assert result.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_matrices_stay_references_unless_their_values_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", 1 << 30)
    monkeypatch.setattr(large_models, "MATRIX_BYTES", 512)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16), np.float32) for name in ("read", "turned")}
    nodes = [
        helper.make_node("Transpose", ["turned"], ["folded"]),
        helper.make_node("MatMul", ["x", "read"], ["y"]),
        helper.make_node("MatMul", ["y", "folded"], ["z"]),
    ]
    model = builders.model(nodes, [builders.tensor("x", [2, 16])], [builders.tensor("z", [2, 16])], weights)
    before = outputs(model)
    seen = []

    def tool(outline: Any) -> Any:
        seen.extend(tensor.name for tensor in io.external_tensors(outline))
        return outline

    outline = io.parse(io.save(model, tmp_path, external=True))
    call_on_references(tool, outline)
    assert seen == ["read"]
    slim = Simplify().simplified(io.parse(tmp_path / "model.onnx"))
    assert slim is not None
    io.load_weights(slim, tmp_path)
    assert [node.op_type for node in slim.graph.node] == ["MatMul", "MatMul"]
    np.testing.assert_allclose(outputs(slim)[0], before[0], rtol=1e-5)


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
