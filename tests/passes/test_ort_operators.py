"""onnxruntime's own operators: its graph optimization, normalization split again, approximate Gelu."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import compare, ops, step
from micro_models import MODELS, made, normal, positive

from autoopt.model import io
from autoopt.model.session import write_optimized
from autoopt.passes.fusion.ort_operators import GeluApproximation, SplitSkipNormalization
from autoopt.passes.runner import run

PARTS = """m = ReduceMean <axes = [-1]> (s)
 d = Sub (s, m)
 q = Pow (d, two)
 v = ReduceMean <axes = [-1]> (q)
 e = Add (v, epsilon)
 r = Sqrt (e)
 n = Div (d, r)
 w = Mul (n, scale)
 y = Add (w, shift)"""


def _model(text: str, opset: int = 17) -> onnx.ModelProto:
    return made(
        f"g (float[1, N, 8] x, float[1, N, 8] z) => {text}",
        opset=opset,
        domains=', "com.microsoft": 1',
        scale=positive(8),
        shift=normal(8),
        bias=normal(8, seed=1),
        two=np.float32(2),
        epsilon=np.float32(1e-5),
    )


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [("x, z, scale", "y"), ("x, z, scale, shift, bias", "y"), ("x, z, scale, , bias", "y, , , s")],
)
def test_a_joined_normalization_becomes_a_sum_and_a_normalization(tmp_path: Path, inputs: str, outputs: str) -> None:
    results = "(float[1, N, 8] y, float[1, N, 8] s)" if "s" in outputs else "(float[1, N, 8] y)"
    model = _model(f"{results} {{ {outputs} = com.microsoft.SkipLayerNormalization <epsilon = 0.01> ({inputs}) }}")
    after = SplitSkipNormalization()(model)
    assert ops(after) == ["Sum", "LayerNormalization"]
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("parts", ["y = LayerNormalization <axis = -1> (s, scale, shift)", PARTS])
def test_onnxruntime_does_not_join_a_protected_sum(tmp_path: Path, parts: str) -> None:
    model = _model(f"(float[1, N, 8] y) {{ s = Add (x, z)\n {parts} }}")
    after = SplitSkipNormalization()(model)
    assert compare(model, after, tmp_path).status == "same"
    for name, graph in (("before", model), ("after", after)):
        write_optimized(io.save(graph, tmp_path / name), tmp_path / f"{name}.onnx", {})
    assert ops(io.load(tmp_path / "before.onnx")) == ["SkipLayerNormalization"]
    assert ops(io.load(tmp_path / "after.onnx")) == ["Sum", "LayerNormalization"]


@pytest.mark.parametrize(
    "model",
    [
        MODELS["relu_only"](),
        _model("(float[1, N, 8] y) { s = Add (x, z)\n m = ReduceMean <axes = [-1]> (s)\n y = Mul (m, s) }"),
        _model("(float[1, N, 8] y, float m) { y, m = com.microsoft.SkipLayerNormalization (x, z, scale) }"),
        _model("(float[1, N, 8] y) { y = com.microsoft.SkipLayerNormalization (x, z, scale) }", opset=13),
        _model(f"(float[1, N, 8] y) {{ s = Add (x, z)\n {PARTS} }}", opset=7),
    ],
)
def test_other_models_are_unchanged(model: onnx.ModelProto) -> None:
    assert SplitSkipNormalization()(model) is model


def test_approximate_gelu_leaves_sorted_nodes() -> None:
    model = made(
        "g (float[2, 8] x) => (float[2, 8] y) { a = com.microsoft.Gelu (x)\n y = Neg (a) }",
        domains=', "com.microsoft": 1',
    )
    after = GeluApproximation()(model)
    assert [node.op_type for node in after.graph.node] == ["FastGelu", "Neg"]


def test_the_ir_version_is_raised_after_offline_optimization(tmp_path: Path) -> None:
    """The runtime makes new weights of the old ones, and no inputs for them."""
    model = MODELS["conv_batchnorm"]()
    model.ir_version, model.opset_import[0].version = 3, 9
    for weight in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    result = step(tmp_path, model, "ort_graph_optimization", level="basic")
    assert result["outcome"] == "ok", result["message"]
    onnx.checker.check_model(str(Path(result["path"], "model.onnx")), full_check=True)


def test_disabled_optimizers_are_disabled(tmp_path: Path) -> None:
    fused = step(tmp_path / "a", MODELS["mlp"](), "ort_graph_optimization", level="basic")
    plain = step(
        tmp_path / "b",
        MODELS["mlp"](),
        "ort_graph_optimization",
        level="basic",
        disabled_optimizers=["MatMulAddFusion"],
    )
    assert "Gemm" in ops(io.load(Path(fused["path"], "model.onnx")))
    assert plain["outcome"] == "unchanged" or "Gemm" not in ops(io.load(Path(plain["path"], "model.onnx")))


def test_an_absent_execution_provider_is_refused(tmp_path: Path) -> None:
    payload = {
        "model": {"path": str(io.save(MODELS["mlp"](), tmp_path / "s"))},
        "steps": [{"pass": "ort_graph_optimization"}],
        "output": str(tmp_path / "out"),
        "accelerator": {"device": "gpu", "execution_provider": "CUDAExecutionProvider"},
    }
    result = run(payload)["steps"][0]
    assert result["outcome"] == "refused"
    assert "not in the installed onnxruntime" in result["message"]
