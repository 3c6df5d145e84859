"""onnxruntime's offline graph optimization."""

from __future__ import annotations

from pathlib import Path

import onnx
from bench import ops, step
from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.runner import run


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
