"""Conversions of opset, IR version, functions and inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import saved, step
from micro_models import MODELS
from onnx import TensorProto, helper, numpy_helper

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


def test_weights_that_are_no_longer_inputs_may_be_folded(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        "w": random.normal(size=(16, 3, 3, 3)),
        "scale": random.uniform(0.5, 2, 16),
        "shift": random.normal(size=16),
        "mean": random.normal(size=16),
        "variance": random.uniform(0.5, 2, 16),
    }
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, depth, 8, 8))
        for name, depth in (("x", 3), ("y", 16))
    )
    inputs = [helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims) for tensor in tensors]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], "norm"),
    ]
    graph = helper.make_graph(nodes, "old", [x, *inputs], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)
    result = step(tmp_path, model, "ir_upgrade")
    assert result["outcome"] == "ok", result["message"]
    assert [value.name for value in saved(result).graph.input] == ["x"]
