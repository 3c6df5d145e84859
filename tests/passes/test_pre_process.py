"""Preparation for quantization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import same, saved, step
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.onnx_tools.opsets import opset
from autoopt.passes.runner import run


def test_a_failed_symbolic_inference_is_retried_without_it(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["trees"](), "quant_pre_process")
    assert result["outcome"] in ("ok", "unchanged")
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
