"""Cutting, joining, dressing and storing models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step, steps
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.model.session import make_session
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
def test_stages_one_after_the_other_are_the_model(tmp_path: Path, name: str, count: int) -> None:
    model = MODELS[name]()
    feeds = next(synthetic_feeds(model))
    values = chained(stages(tmp_path, model, count, stages=count), tmp_path, feeds)
    for output, expected in zip(model.graph.output, outputs(model, tmp_path, feeds), strict=True):
        np.testing.assert_allclose(values[output.name], expected, rtol=1e-4, atol=1e-4)


def test_cuts_by_name(tmp_path: Path) -> None:
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


def test_models_of_other_types_do_not_fit(tmp_path: Path) -> None:
    second = made("g (int64[N, 4] x) => (int64[N, 4] y) { y = Neg (x) }")
    path = io.save(second, tmp_path / "second")
    result = step(tmp_path, MODELS["gemm_mlp"](), "merge", second=str(path))
    assert (result["outcome"], "different types" in result["message"]) == ("refused", True)


def test_checkpoints_are_the_inner_values(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_raw_images_in(tmp_path: Path, layout: str) -> None:
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


def test_only_images_are_preprocessed(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "prepend_preprocessing")["outcome"] == "refused"
    result = step(tmp_path, MODELS["image_in"](), "prepend_preprocessing", input="imag")
    assert "did you mean 'image'" in result["message"]


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "argmax"])
def test_outputs_are_finished_in_the_graph(tmp_path: Path, kind: str) -> None:
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


def test_an_integer_output_has_no_softmax(tmp_path: Path) -> None:
    model = made("g (int64[2, 4] x) => (int64[2, 4] y) { y = Neg (x) }")
    assert step(tmp_path, model, "append_postprocessing")["outcome"] == "refused"


def test_large_weights_move_beside_the_graph_and_the_source_stays(tmp_path: Path) -> None:
    model = made("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul (x, w) }", w=normal(64, 64))
    before = model.SerializeToString()
    result = step(tmp_path, model, "external_data")
    assert result["outcome"] == "ok", result["message"]
    assert sorted(path.name for path in Path(result["path"]).iterdir()) == ["model.onnx", "model.onnx.data"]
    assert Path(result["path"], "model.onnx").stat().st_size < 1000
    assert saved(result).SerializeToString() == before
    assert io.load(tmp_path / "source" / "model.onnx").SerializeToString() == before


def test_small_weights_stay(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["relu_only"](), "external_data")["outcome"] == "unchanged"
    assert step(tmp_path, MODELS["mlp"](), "external_data", size_threshold=1_000_000)["outcome"] == "unchanged"


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
def test_the_runtimes_own_format_runs_and_is_the_last(tmp_path: Path, level: str) -> None:
    model = MODELS["small_cnn"]()
    results = steps(tmp_path, model, [("ort_format", {"level": level}), ("identity_elimination", {})])
    assert [result["outcome"] for result in results] == ["ok", "refused"]
    feeds = next(synthetic_feeds(model))
    found = make_session(Path(results[0]["path"]) / "model.ort").run(None, feeds)[0]
    np.testing.assert_allclose(found, outputs(model, tmp_path, feeds)[0], rtol=1e-4, atol=1e-5)
