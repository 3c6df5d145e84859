"""Whole-graph simplifiers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxsim
import onnxslim
import pytest
from bench import ops, same, saved, step
from micro_models import MODELS, made, normal, positive

from autoopt.passes.base import Refused
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, Simplify


def test_unsafe_passes_of_onnxoptimizer_never_run() -> None:
    with pytest.raises(Refused, match="aborts the whole process"):
        OnnxOptimizer(passes=["fuse_qkv"])(MODELS["mlp"]())


def test_onnxoptimizer_folds_constants_after_fusing_batchnorm(tmp_path: Path) -> None:
    model = MODELS["conv_batchnorm"]()
    after = OnnxOptimizer(passes=["fuse_bn_into_conv"])(model)
    assert ops(after) == ["Conv", "Relu"]
    assert same(model, after, tmp_path)


def test_unknown_optimizers_and_patterns_are_refused(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "ort_graph_optimization", disabled_optimizers=["MatMulAddFuson"])
    assert result["outcome"] == "refused"
    assert "did you mean 'MatMulAddFusion'" in result["message"]
    result = step(tmp_path, MODELS["mlp"](), "simplify", skip_fusion_patterns=["FusionGem"])
    assert result["outcome"] == "refused"
    assert "onnxslim has no pattern 'FusionGem'" in result["message"]


def test_onnxslim_gets_biases_that_current_exports_compute(tmp_path: Path) -> None:
    """Without it, the batch normalization stays, and the layer cannot be computed in integers."""
    model = made(
        """g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) {
            like = CastLike (zero, x)
            bias = Expand (like, size)
            c = Conv <pads = [1, 1, 1, 1]> (x, w, bias)
            y = BatchNormalization (c, scale, shift, mean, variance)
        }""",
        zero=np.zeros(1, np.float32),
        size=np.array([4]),
        w=normal(4, 3, 3, 3),
        **{name: positive(4) for name in ("scale", "shift", "mean", "variance")},
    )
    after = Simplify()(model)
    assert ops(after) == ["Conv"]
    assert same(model, after, tmp_path)


@pytest.mark.parametrize("name", ["onnxsim", "onnxoptimizer"])
def test_omitted_outputs_and_inputs_do_not_share_a_type(tmp_path: Path, name: str) -> None:
    model = made(
        "g (float[5, 1, 4] x) => (float[1, 1, 6] z) { y, h = LSTM <hidden_size = 6> (x, w, r)\n z = Relu (h) }",
        w=normal(1, 24, 4),
        r=normal(1, 24, 6, seed=1),
        start=normal(1, 1, 6, seed=2),
    )
    (lstm, relu) = model.graph.node
    lstm.output[0] = ""
    lstm.input.extend(["", "", "start"])
    relu.input[0] = "h"
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged"), result["message"]


def test_onnxslim_gets_constants_as_tensors(tmp_path: Path) -> None:
    """It takes `value_float` for something else and computes other results."""
    model = MODELS["constants"]()
    assert same(model, Simplify()(model), tmp_path)


@pytest.mark.parametrize("engine", ["onnxslim", "onnxsim"])
@pytest.mark.parametrize("fuse", [True, False])
def test_simplify_fuses_only_on_request(engine: str, fuse: bool, tmp_path: Path) -> None:
    model = MODELS["conv_batchnorm"]()
    after = Simplify(engine=engine, fuse=fuse)(model)
    assert ("BatchNormalization" not in ops(after)) == fuse
    assert same(model, after, tmp_path)


def test_another_engine_is_tried_where_one_fails_or_the_runtime_refuses_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unloadable(model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
        model.graph.node[0].op_type = "NoSuchOperator"
        return model

    def broken(model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
        raise RuntimeError("no shape")

    monkeypatch.setattr(onnxslim, "slim", unloadable)
    monkeypatch.setattr(onnxsim, "simplify", broken)
    result = step(tmp_path, MODELS["conv_batchnorm"](), "simplify")
    assert (result["outcome"], result["params"]["engine"]) == ("ok", "onnxscript"), result["message"]
    reasons = [attempt["reason"] for attempt in result["attempts"]]
    assert reasons == ["the runtime does not load the result of onnxslim", "onnxsim failed: no shape"]


def test_another_engine_is_tried_where_the_result_of_one_computes_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
        model.graph.node[-1].op_type = "Neg"
        del model.graph.node[-1].attribute[:]
        del model.graph.node[-1].input[1:]
        return model

    monkeypatch.setattr(onnxslim, "slim", wrong)
    result = step(tmp_path, MODELS["conv_batchnorm"](), "simplify")
    assert (result["outcome"], result["params"]["engine"]) == ("ok", "onnxsim"), result["message"]
    (attempt,) = result["attempts"]
    assert attempt["params"]["engine"] == "onnxslim"
    assert "not equivalent" in attempt["reason"]


def test_functions_beside_bodies_are_simplified(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 3] x) => (float[2, 3] y) { a = local.twice (x)\n m = ReduceMax <keepdims = 0> (a)\n"
        " c = Cast <to = 9> (m)\n z = If (c) <then_branch = t () => (float[2, 3] p) { p = Neg (a) },"
        " else_branch = e () => (float[2, 3] q) { q = Abs (a) }>\n y = Identity (z) }\n"
        '<domain: "local", opset_import: ["": 17]> twice (v) => (w) { w = Add (v, v) }',
        domains=', "local": 1',
    )
    result = step(tmp_path, model, "onnxslim")
    assert result["outcome"] == "ok", result["message"]
    assert "Identity" not in ops(saved(result))
