"""A weight whose inferred type is written down, as PyTorch's exporter does, and which the quantiser transposes."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoopt.passes.runner import run


def gemm_with_typed_weight() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(weight, "w")],
        value_info=[helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 6])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_dynamic_quantisation_takes_it(tmp_path: Path) -> None:
    onnx.save(gemm_with_typed_weight(), tmp_path / "model.onnx")
    steps = [{"node": "q", "pass": "dynamic_quantization", "params": {}}]
    payload = {"model": {"path": str(tmp_path / "model.onnx")}, "steps": steps, "output": str(tmp_path / "out")}
    (step,) = run(payload)["steps"]
    assert (step["outcome"], step["message"]) == ("ok", "")
