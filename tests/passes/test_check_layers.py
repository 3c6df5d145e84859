"""Quantization error by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from bench import saved, step
from micro_models import MODELS

from autoopt.model import io


def report(folder: Path, model: onnx.ModelProto, name: str, data: bool = False, **params: Any) -> Any:
    result = step(folder, model, name, data, **params)
    assert result["outcome"] == "unchanged", result["message"]
    assert result["path"] is None
    return result["reports"][name]


def test_values_of_a_quantized_model_are_compared_with_the_float_one(tmp_path: Path) -> None:
    model = MODELS["small_cnn"]()
    origin = io.save(model, tmp_path / "origin")
    quantized = saved(step(tmp_path, model, "static_quantization", True))
    alone = report(tmp_path, quantized, "layer_precision_compare", True)
    assert all(set(entry) == {"name", "qdq_err"} for entry in alone["activations"])
    found = report(tmp_path, quantized, "layer_precision_compare", True, origin=str(origin))
    errors = [entry["xmodel_err"] for entry in found["activations"] if "xmodel_err" in entry]
    assert errors == sorted(errors)
    assert min(errors) > 5
    assert {entry["name"] for entry in found["weights"]} >= {"w1", "w2"}


def test_a_float_model_has_no_layers_to_compare(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "layer_precision_compare", True)["outcome"] == "refused"
