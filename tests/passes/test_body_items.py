"""Static quantization inside the bodies of If, Loop and Scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import cosine, outputs, saved, step
from micro_models import MODELS, branches_of_outer_weights, made, normal
from onnx import ModelProto, numpy_helper, parser

from autoopt.model import io
from autoopt.model.tensors import walk_graphs
from autoopt.passes.onnx_tools.graphs import walk_nodes
from autoopt.passes.runner import run
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def looped() -> ModelProto:
    """A loop that multiplies its state with a matrix, adds an outer value and collects the states."""
    return made(
        """g (float[2, 16] x) => (float[2, 16] last, float[3, 2, 16] all)
        { outer = Relu (x)\n last, all = Loop <body = b (int64 i, bool go, float[2, 16] h) => (bool on, float[2, 16] n,
            float[2, 16] state) { on = Identity (go)\n m = MatMul (h, w)\n s = Add (m, outer)\n n = Tanh (s)\n
            state = Identity (n) }> (trips, , x) }""",
        w=normal(16, 16) / 4,
        trips=np.array(3, np.int64),
    )


def scanned() -> ModelProto:
    """A Scan of a recurrent layer, from the last step to the first."""
    return made(
        """g (float[5, 1, 16] x) => (float[5, 1, 16] y)
        { last, y = Scan <num_scan_inputs = 1, scan_input_directions = [1],
            body = b (float[1, 16] h, float[1, 16] e) => (float[1, 16] n, float[1, 16] o) {
            m = MatMul (h, w)\n s = Add (m, e)\n n = Tanh (s)\n o = Identity (n) }> (first, x) }""",
        w=normal(16, 16) / 4,
        first=np.zeros((1, 16), np.float32),
    )


def nested() -> ModelProto:
    """An If in a Scan, whose branches read a weight of the main graph and a value of the body."""
    return made(
        """g (float[5, 1, 16] x) => (float[5, 1, 16] y)
        { last, y = Scan <num_scan_inputs = 1, body = b (float[1, 16] h, float[1, 16] e) => (float[1, 16] n,
            float[1, 16] o) { a = Add (h, e)\n total = ReduceSum <keepdims = 0> (a)\n positive = Greater (total, zero)\n
            n = If (positive) <then_branch = t () => (float[1, 16] p) { p = MatMul (a, w) },
                else_branch = f () => (float[1, 16] q) { q = Neg (a) }>\n
            o = Identity (n) }> (first, x) }""",
        w=normal(16, 16) / 4,
        zero=np.array(0, np.float32),
        first=np.zeros((1, 16), np.float32),
    )


def quantized_bodies(model: ModelProto) -> int:
    """The number of bodies with integer operators."""
    _, *bodies = walk_graphs(model.graph)
    return sum(any("Quantize" in node.op_type or "QLinear" in node.op_type for node in body.node) for body in bodies)


@pytest.mark.parametrize("params", [{}, {"quant_format": "QOperator", "weight_type": "QUInt8"}, {"per_channel": True}])
@pytest.mark.parametrize(
    ("model", "bodies"), [(looped(), 1), (scanned(), 1), (nested(), 2)], ids=["loop", "scan", "nested"]
)
def test_layers_of_bodies_are_quantized(
    tmp_path: Path, model: ModelProto, bodies: int, params: dict[str, object]
) -> None:
    result = step(tmp_path, model, "static_quantization", True, **params)
    assert result["outcome"] == "ok", result["message"]
    quantized = saved(result)
    assert quantized_bodies(quantized) == bodies
    assert "w" not in {tensor.name for tensor in quantized.graph.initializer}
    feeds = next(synthetic_feeds(model))
    for expected, actual in zip(outputs(model, tmp_path, feeds), outputs(quantized, tmp_path, feeds), strict=True):
        assert cosine(expected, actual) > 0.98


def test_only_branches_that_the_data_take_are_quantized(tmp_path: Path) -> None:
    model = branches_of_outer_weights()
    data = tmp_path / "taken.npz"
    np.savez(data, x=normal(8, 2, 16), flag=np.array(True))
    request = {
        "model": {"path": str(io.save(model, tmp_path / "source"))},
        "steps": [{"pass": "static_quantization", "params": {}}],
        "output": str(tmp_path / "out"),
        "data": str(data),
    }
    (result,) = run(request)["steps"]
    assert result["outcome"] == "ok", result["message"]
    assert quantized_bodies(saved(result)) == 1


def test_bodies_stay_in_float_on_request(tmp_path: Path) -> None:
    model = looped()
    assert step(tmp_path, model, "static_quantization", True, bodies=False)["outcome"] == "unchanged"


def test_a_loop_over_a_sequence_stays_in_float(tmp_path: Path) -> None:
    """Only tensors can be recorded; the rest of the model is quantized all the same."""
    model = made(
        """g (float[2, 16] x) => (float[2, 16] y)
        { h = MatMul (x, w)\n none = SequenceEmpty ()\n
          parts = Loop <body = b (int64 i, bool go, seq(float[2, 16]) s) => (bool on, seq(float[2, 16]) t)
            { on = Identity (go)\n m = MatMul (h, v)\n t = SequenceInsert (s, m) }> (trips, , none)\n
          z = SequenceAt (parts, zero)\n y = MatMul (z, w) }""",
        w=normal(16, 16) / 4,
        v=normal(16, 16, seed=1) / 4,
        trips=np.array(2, np.int64),
        zero=np.array(0, np.int64),
    )
    result = step(tmp_path, model, "static_quantization", True)
    assert result["outcome"] == "ok", result["message"]
    assert result["params"]["bodies"] is False
    assert "stay in float" in result["attempts"][0]["reason"]


def test_layers_of_local_functions_are_quantized(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[2, 16] x) => (float[2, 16] y) { y = own.layer (x, w) }
        <domain: "own", opset_import: ["": 17]> layer (a, b) => (c) { m = MatMul (a, b)\n c = Relu (m) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(normal(16, 16), "w"))
    result = step(tmp_path, model, "static_quantization", True)
    assert result["outcome"] == "ok", result["message"]
    assert any("Quantize" in node.op_type for node in walk_nodes(saved(result).graph))


def test_a_model_without_bodies_is_quantized_as_before(tmp_path: Path) -> None:
    model = MODELS["gemm_mlp"]()
    with_bodies = step(tmp_path / "a", model, "static_quantization", True)
    without = step(tmp_path / "b", model, "static_quantization", True, bodies=False)
    assert with_bodies["digest"] == without["digest"]
