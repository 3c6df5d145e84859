"""Preparation for quantization."""

from __future__ import annotations

from pathlib import Path

import onnx
from bench import step
from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.runner import run
from autoopt.passes.verification.equivalence import compare_outputs, run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_a_failed_symbolic_inference_is_retried_without_it(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["trees"](), "quant_pre_process")
    assert result["outcome"] in ("ok", "unchanged")
    assert [attempt["params"]["skip_symbolic_shape"] for attempt in result["attempts"]] == [False]
    assert result["params"]["skip_symbolic_shape"] is True


def same(a: onnx.ModelProto, b: onnx.ModelProto, folder: Path) -> bool:
    feeds = next(synthetic_feeds(a))
    outputs = [run_once(io.save(model, folder / str(i)), feeds) for i, model in enumerate((a, b))]
    return compare_outputs(outputs[0], outputs[1], "equal").status == "same"


def test_external_data_is_accepted(tmp_path: Path) -> None:
    """As a ModelProto, a large model could not be handed over."""
    model = MODELS["mlp"]()
    path = io.save(model, tmp_path / "source", external=True)
    assert path.with_name("model.onnx.data").exists()
    payload = {"model": {"path": str(path)}, "steps": [{"pass": "quant_pre_process"}], "output": str(tmp_path / "out")}
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert same(model, io.load(Path(result["path"], "model.onnx")), tmp_path)
