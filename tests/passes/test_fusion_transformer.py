"""Fusion of transformer blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.fusion.transformer import GeluApproximation
from autoopt.passes.runner import run


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def step(tmp_path: Path, model: onnx.ModelProto, name: str, **params: Any) -> dict[str, Any]:
    path = io.save(model, tmp_path / "source")
    payload = {
        "model": {"path": str(path)},
        "steps": [{"pass": name, "params": params}],
        "output": str(tmp_path / "out"),
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_the_default_engine_fuses_attention_of_current_exports(tmp_path: Path) -> None:
    """The other engine finds none in it."""
    model = MODELS["attention"]()
    fused = step(tmp_path / "a", model, "transformer_fusion")
    assert fused["outcome"] == "ok", fused["message"]
    assert {"MultiHeadAttention", "Attention"} & set(ops(io.load(Path(fused["path"], "model.onnx"))))
    other = step(tmp_path / "b", model, "transformer_fusion", engine="onnxruntime")
    assert other["outcome"] == "unchanged" or "attention" not in str(other["reports"]).lower()


def test_fused_models_import_the_domains_of_their_operators(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["skip_layer_norm"](), "transformer_fusion", engine="onnxruntime", opt_level=0)
    assert result["outcome"] == "ok", result["message"]
    model = io.load(Path(result["path"], "model.onnx"))
    assert "com.microsoft" in {entry.domain for entry in model.opset_import}


def test_approximate_gelu_leaves_sorted_nodes() -> None:
    model = made(
        "g (float[2, 8] x) => (float[2, 8] y) { a = com.microsoft.Gelu (x)\n y = Neg (a) }",
        domains=', "com.microsoft": 1',
    )
    after = GeluApproximation()(model)
    assert [node.op_type for node in after.graph.node] == ["FastGelu", "Neg"]
