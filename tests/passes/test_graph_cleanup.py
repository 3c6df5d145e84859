"""Single clean-up steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from bench import step
from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.cleanup.graph_cleanup import NameFix
from autoopt.passes.fusion.ort_graph import OrtGraphOptimization
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_duplicate_node_names_are_repaired(tmp_path: Path) -> None:
    model = MODELS["double_names"]()
    assert step(tmp_path, model, "ort_graph_optimization")["outcome"] == "refused"
    assert "name_fix" in OrtGraphOptimization.requires
    fixed = NameFix()(model)
    assert len({node.name for node in fixed.graph.node}) == 2
    run_once(io.save(fixed, tmp_path / "fixed"), next(synthetic_feeds(fixed)))


def test_sparse_weights_are_not_lost(tmp_path: Path) -> None:
    values = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([0, 5], np.int64), "places")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    sparse = onnx.helper.make_sparse_tensor(values, places, [4, 4])
    graph = onnx.helper.make_graph([node], "g", [x], [y], sparse_initializer=[sparse])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    for name in ("name_fix", "remove_unused", "constant_folding"):
        reply = step(tmp_path, model, name)
        assert (reply["outcome"], "sparse weights" in reply["message"]) == ("refused", True)
