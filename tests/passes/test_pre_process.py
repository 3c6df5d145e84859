"""Preparation for quantization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import ops, same, saved, step, steps
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.onnx_tools.opsets import opset
from autoopt.passes.runner import run


def test_a_failed_symbolic_inference_is_retried_without_it(tmp_path: Path) -> None:
    model = made(
        """g (float[N, 4] x) => (float[N, 4] y) {
            a = com.microsoft.Gelu (x)
            b = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (a)
            y = Neg (b)
        }""",
        domains=', "com.microsoft": 1, "ai.onnx.ml": 3',
    )
    result = step(tmp_path, model, "quant_pre_process")
    assert result["outcome"] in ("ok", "unchanged"), result["message"]
    assert [attempt["params"]["skip_symbolic_shape"] for attempt in result["attempts"]] == [False]
    assert result["params"]["skip_symbolic_shape"] is True


def test_external_data_is_accepted(tmp_path: Path) -> None:
    """As a ModelProto, a large model could not be handed over."""
    model = MODELS["mlp"]()
    path = io.save(model, tmp_path / "source", external=True)
    assert path.with_name("model.onnx.data").exists()
    payload = {"model": {"path": str(path)}, "steps": [{"pass": "quant_pre_process"}], "output": str(tmp_path / "out")}
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert same(model, io.load(Path(result["path"], "model.onnx")), tmp_path)


def test_names_of_open_sizes_are_not_stored(tmp_path: Path) -> None:
    """The tool merges those that only broadcast to each other."""
    text = """g (float[1, 2, H, W] x) => (float[1, 2, N, M] y) {
        a = com.microsoft.Gelu (x)
        b = Resize <mode = "nearest"> (a, , s)
        c = Add (b, x)
        y = Neg (c)
    }"""
    model = made(text, opset=17, domains=', "com.microsoft": 1', s=np.array([1, 1, 2, 2], np.float32))
    result = step(tmp_path, model, "quant_pre_process", skip_optimization=True)
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same"), result["message"]
    sizes = [size for value in saved(result).graph.value_info for size in value.type.tensor_type.shape.dim]
    assert sizes
    assert not any(size.dim_param for size in sizes)


def test_models_of_old_operator_sets_are_upgraded_before_the_optimizer_sees_them(tmp_path: Path) -> None:
    model = made(
        'g (float[1, 1, 4, 4] x) => (float[1, 1, H, W] y) { h = Neg (x)\n y = Upsample <mode = "linear"> (h, s) }',
        opset=9,
        ir=8,
        s=np.array([1, 1, 2, 2], np.float32),
    )
    result = step(tmp_path, model, "quant_pre_process")
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same"), result["message"]
    assert opset(saved(result)) >= 13


def test_silu_is_one_operator_between_quantized_layers(tmp_path: Path) -> None:
    text = """g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w)
        s = Sigmoid (a)
        b = Mul (a, s)
        y = Conv <pads = [1, 1, 1, 1]> (b, v)
    }"""
    model = made(text, w=normal(4, 3, 3, 3), v=normal(4, 4, 3, 3))
    result = step(tmp_path, model, "quant_pre_process")
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same"), result["message"]
    assert ops(saved(result)) == ["Conv", "QuickGelu", "Conv"]
    *_, quantized = steps(
        tmp_path / "static",
        model,
        [("quant_pre_process", {}), ("static_quantization", {"op_types": ["Conv"]})],
        data=True,
    )
    assert quantized["outcome"] == "ok", quantized["message"]
    assert "QuickGelu" in ops(saved(quantized))
