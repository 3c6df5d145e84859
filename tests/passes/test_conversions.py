"""Conversions of opset, IR version, functions and inputs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from bench import step
from micro_models import MODELS

from autoopt.passes.base import Refused
from autoopt.passes.convert import conversions
from autoopt.passes.convert.conversions import OpsetConversion
from autoopt.passes.onnx_tools import opsets


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
