"""Conversions of opset, IR version, functions and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.convert import conversions
from autoopt.passes.convert.conversions import OpsetConversion
from autoopt.passes.onnx_tools import opsets
from autoopt.passes.runner import run


def step(tmp_path: Path, model: onnx.ModelProto, name: str, **params: Any) -> dict[str, Any]:
    path = io.save(model, tmp_path / "source")
    payload = {
        "model": {"path": str(path)},
        "steps": [{"pass": name, "params": params}],
        "output": str(tmp_path / "out"),
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_converting_down_is_refused() -> None:
    with pytest.raises(Refused, match="loses operators"):
        OpsetConversion(target_opset=13)(MODELS["relu_only"]())


def test_conversion_retries_at_a_lower_opset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(model: onnx.ModelProto, version: int, first: opsets.Converter = "onnx") -> onnx.ModelProto:
        if version > 19:
            raise ValueError("no adapter")
        return opsets.convert_opset(model, version, first)

    monkeypatch.setattr(conversions, "convert_opset", limited)
    result = step(tmp_path, MODELS["mlp"](), "opset_conversion", target_opset=23)
    assert (result["outcome"], result["params"]["target_opset"]) == ("ok", 19)
    assert [attempt["params"]["target_opset"] for attempt in result["attempts"]] == [23, 21]
