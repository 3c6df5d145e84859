"""Inferred shapes, and constants in place of computed ones."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from bench import ops, saved, step
from micro_models import MODELS, made, normal

from autoopt.passes.shape.inference import MaterializeReshape, ShapeInference


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    return {
        value.name: [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.value_info
    }


TWO_LAYERS = "g (float[N, 4] x) => (float[N, 2] y) { h = MatMul (x, w)\n y = Relu (h) }"


def test_shapes_of_inner_values_are_recorded() -> None:
    model = made(TWO_LAYERS, w=normal(4, 2))
    assert shapes(ShapeInference()(model)) == {"h": ["N", 2]}


def test_recording_shapes_is_a_change_and_recorded_shapes_are_not(tmp_path: Path) -> None:
    model = made(TWO_LAYERS, w=normal(4, 2))
    first = step(tmp_path / "a", model, "shape_inference")
    assert first["outcome"] == "ok"
    assert step(tmp_path / "b", saved(first), "shape_inference")["outcome"] == "unchanged"


def test_data_propagation_follows_shape_computations() -> None:
    model = MODELS["computed_reshape"]()
    without = shapes(ShapeInference(data_prop=False)(model))
    assert set(shapes(ShapeInference(data_prop=True)(model))) >= set(without)


def test_symbolic_inference_knows_operators_of_the_runtime(tmp_path: Path) -> None:
    model = made(
        "g (float[N, 4] x) => (float[N, 4] y) { h = com.microsoft.Gelu (x)\n y = Relu (h) }",
        domains=', "com.microsoft": 1',
    )
    result = step(tmp_path, model, "symbolic_shape_inference")
    assert result["outcome"] == "ok", result["message"]
    assert shapes(saved(result))["h"] == ["N", 4]


def test_outputs_of_operators_that_symbolic_inference_does_not_know_keep_their_shape(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["spectrum"](), "symbolic_shape_inference")
    assert result["outcome"] == "ok", result["message"]
    (output,) = saved(result).graph.output
    assert [dim.dim_value or dim.dim_param for dim in output.type.tensor_type.shape.dim] == ["N", "frames", 9, 2]


def test_models_that_the_tool_cannot_handle_are_refused(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["constants"](), "symbolic_shape_inference")
    assert result["outcome"] == "refused"
    assert result["message"].startswith("symbolic shape inference fails: ")


def test_a_known_shape_of_reshape_becomes_a_constant() -> None:
    model = MODELS["computed_reshape"]()
    after = MaterializeReshape()(model)
    assert len(ops(after)) < len(ops(model))
    assert "Reshape" in ops(after)


@pytest.mark.parametrize("name", ["relu_only", "mlp"])
def test_models_without_reshape_are_unchanged(name: str) -> None:
    model = MODELS[name]()
    assert MaterializeReshape()(model) is model
