"""Models cut into stages and joined, and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step, steps
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def stages(folder: Path, model: onnx.ModelProto, count: int, **params: Any) -> list[onnx.ModelProto]:
    made_ = []
    for stage in range(count):
        work = folder / str(stage)
        results = steps(work, model, [("shape_inference", {}), ("split_stages", {"stage": stage, **params})])
        assert results[-1]["outcome"] == "ok", results[-1]["message"]
        made_.append(saved(results[-1]))
    return made_


def chained(models: list[onnx.ModelProto], folder: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """Everything that the stages compute, run one after the other."""
    values = dict(feeds)
    for model in models:
        names = [value.name for value in model.graph.input]
        found = outputs(model, folder, {name: values[name] for name in names})
        values.update(zip([value.name for value in model.graph.output], found, strict=True))
    return values


@pytest.mark.parametrize("name", ["mlp", "small_cnn", "skip_layer_norm", "attention"])
@pytest.mark.parametrize("count", [2, 3])
def test_stages_run_in_order_equal_the_model(tmp_path: Path, name: str, count: int) -> None:
    model = MODELS[name]()
    feeds = next(synthetic_feeds(model))
    values = chained(stages(tmp_path, model, count, stages=count), tmp_path, feeds)
    for output, expected in zip(model.graph.output, outputs(model, tmp_path, feeds), strict=True):
        np.testing.assert_allclose(values[output.name], expected, rtol=1e-4, atol=1e-4)


def test_a_stage_has_the_functions_that_it_calls(tmp_path: Path) -> None:
    functions = """<opset_import: ["": 17], domain: "local"> f (a) => (b) { b = Neg (a) }
        <opset_import: ["": 17, "local": 1], domain: "local"> g (a) => (b) { b = local.f (a) }"""
    graph = f"g (float[2] x) => (float[2] y) {{ c = Relu (x)\n y = local.g (c) }}\n{functions}"
    split = stages(tmp_path, made(graph, domains=', "local": 1'), 2, cuts=[["c"]])
    assert [{function.name for function in stage.functions} for stage in split] == [set(), {"f", "g"}]


def test_cuts_can_be_named(tmp_path: Path) -> None:
    first, second = stages(tmp_path, MODELS["mlp"](), 2, cuts=[["c"]])
    assert ([v.name for v in first.graph.output], [v.name for v in second.graph.input]) == (["c"], ["c"])
    assert ops(second) == ["MatMul", "Add", "Softmax"]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"cuts": [["cc"]]}, "did you mean 'c'"),
        ({"stage": 2}, "stages 0 to 1"),
        ({"stages": 50}, "cannot make 50 stages"),
    ],
)
def test_impossible_cuts_are_refused(tmp_path: Path, params: dict[str, Any], said: str) -> None:
    results = steps(tmp_path, MODELS["mlp"](), [("shape_inference", {}), ("split_stages", params)])
    assert results[-1]["outcome"] == "refused"
    assert said in results[-1]["message"]


def test_checkpoints_expose_inner_values(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    passes: list[tuple[str, dict[str, Any]]] = [("shape_inference", {})]
    result = steps(tmp_path, model, [*passes, ("add_checkpoints", {"values": ["c"], "op_types": ["MatMul"]})])[-1]
    assert result["outcome"] == "ok", result["message"]
    open_ = saved(result)
    assert [value.name for value in open_.graph.output] == ["y", "c", "a", "d"]
    found = outputs(open_, tmp_path, next(synthetic_feeds(model)))
    np.testing.assert_array_equal(found[1] >= 0, True)
    result = steps(tmp_path, model, [*passes, ("add_checkpoints", {"values": ["cc"]})])[-1]
    assert (result["outcome"], "did you mean 'c'" in result["message"]) == ("refused", True)


def test_two_models_become_one(tmp_path: Path) -> None:
    first, second = MODELS["gemm_mlp"](), made("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }", opset=19)
    path = io.save(second, tmp_path / "second")
    result = step(tmp_path, first, "merge", second=str(path))
    assert result["outcome"] == "ok", result["message"]
    joined = saved(result)
    feeds = next(synthetic_feeds(first))
    expected = np.maximum(outputs(first, tmp_path, feeds)[0], 0)
    np.testing.assert_allclose(outputs(joined, tmp_path, feeds)[0], expected, rtol=1e-5)
    assert max(entry.version for entry in joined.opset_import) == 19


def test_models_with_different_types_are_refused(tmp_path: Path) -> None:
    second = made("g (int64[N, 4] x) => (int64[N, 4] y) { y = Neg (x) }")
    path = io.save(second, tmp_path / "second")
    result = step(tmp_path, MODELS["gemm_mlp"](), "merge", second=str(path))
    assert (result["outcome"], "different types" in result["message"]) == ("refused", True)
