"""Dynamic quantization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, saved, step
from micro_models import MODELS, branches_of_outer_weights, made, normal, recurrent_branches, scanned
from onnx import TensorProto, helper, numpy_helper

from autoopt.passes.onnx_tools.graphs import walk_nodes


def test_op_types_limit_the_quantization(tmp_path: Path) -> None:
    assert "MatMulInteger" in ops(saved(step(tmp_path, MODELS["mlp"](), "dynamic_quantization")))
    assert "ConvInteger" in ops(saved(step(tmp_path, MODELS["small_cnn"](), "dynamic_quantization", op_types=[])))
    result = step(tmp_path, MODELS["small_cnn"](), "dynamic_quantization")
    assert "Conv" in ops(saved(result))
    assert "ConvInteger" not in ops(saved(result))


@pytest.mark.parametrize(
    ("quantization", "op_type"),
    [("dynamic_quantization", "MatMulInteger"), ("weight_only_quantization", "MatMulNBits")],
)
def test_weights_in_constant_nodes_of_functions_are_quantized(tmp_path: Path, quantization: str, op_type: str) -> None:
    model = made("g (float[2, 16] x) => (float[2, 16] y) { y = own.Layer (x) }", domains=', "own": 1')
    weight = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(normal(16, 16)))
    nodes = [weight, helper.make_node("MatMul", ["a", "w"], ["b"])]
    model.functions.append(helper.make_function("own", "Layer", ["a"], ["b"], nodes, model.opset_import[:1]))
    assert op_type in ops(saved(step(tmp_path, model, quantization)))


@pytest.mark.parametrize("name", ["trees", "svm", "tfidf", "relu_only"])
@pytest.mark.parametrize("quantization", ["dynamic_quantization", "weight_only_quantization", "bnb4_quantization"])
def test_models_without_quantizable_weights_are_unchanged(tmp_path: Path, name: str, quantization: str) -> None:
    assert step(tmp_path, MODELS[name](), quantization)["outcome"] == "unchanged"


@pytest.mark.parametrize("name", ["trees", "svm"])
def test_models_without_products_are_unchanged(tmp_path: Path, name: str) -> None:
    assert step(tmp_path, MODELS[name](), "static_quantization", True)["outcome"] == "unchanged"


@pytest.mark.parametrize("quantization", ["dynamic_quantization", "static_quantization"])
def test_weights_of_local_functions_are_quantized(tmp_path: Path, quantization: str) -> None:
    model = in_function(MODELS["mlp"]())
    result = step(tmp_path, model, quantization, quantization == "static_quantization")
    assert result["outcome"] == "ok"
    assert not saved(result).functions


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("create", [MODELS["branches"], branches_of_outer_weights, recurrent_branches, scanned])
def test_weights_in_bodies_are_quantized(
    tmp_path: Path, create: Callable[[], onnx.ModelProto], per_channel: bool
) -> None:
    result = step(tmp_path, create(), "dynamic_quantization", per_channel=per_channel)
    assert (result["outcome"], result["attempts"]) == ("ok", [])
    quantized = saved(result)
    inner = {node.op_type for node in walk_nodes(quantized.graph)} - set(ops(quantized))
    assert inner & {"MatMulInteger", "DynamicQuantizeLSTM"}
    assert not inner & {"MatMul", "Gemm", "LSTM"}


def test_bodies_stay_in_float_on_request(tmp_path: Path) -> None:
    assert step(tmp_path, scanned(), "dynamic_quantization", bodies=False)["outcome"] == "unchanged"


def in_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its first node behind a local function."""
    node = model.graph.node[0]
    inputs, outputs = list(node.input), list(node.output)
    body = onnx.helper.make_function("local", "First", inputs, outputs, [node], [helper.make_opsetid("", 17)])
    call = helper.make_node("First", inputs, outputs, "call", domain="local")
    model.graph.node[0].CopyFrom(call)
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def test_an_excluded_gemm_stays_in_float(tmp_path: Path) -> None:
    model = MODELS["gemm_mlp"]()
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    gemms = [node.name for node in model.graph.node if node.op_type == "Gemm"]
    whole = step(tmp_path / "a", model, "dynamic_quantization", False)
    none = step(tmp_path / "b", model, "dynamic_quantization", False, nodes_to_exclude=gemms)
    assert whole["outcome"] == "ok"
    assert none["outcome"] == "unchanged"


@pytest.mark.parametrize("excluded", [[], ["first", "second"]])
def test_gemms_that_share_a_transposed_weight_are_quantized(tmp_path: Path, excluded: list[str]) -> None:
    gemms = []
    for name, source, result in (("first", "x", "a"), ("second", "a", "b"), ("third", "b", "y")):
        gemms.append(helper.make_node("Gemm", [source, "w", "c"], [result], name, transB=1))
    model = made("g (float[2, 8] x) => (float[2, 8] y) {}", w=normal(8, 8), c=normal(8))
    model.graph.node.extend(gemms)
    result = step(tmp_path, model, "dynamic_quantization", per_channel=True, nodes_to_exclude=excluded)
    assert result["outcome"] == "ok", result["message"]
    counts = Counter(node.op_type for node in saved(result).graph.node)
    assert (counts["MatMulInteger"], counts["MatMul"]) == (3 - len(excluded), len(excluded))
    weights = [tensor for tensor in saved(result).graph.initializer if list(tensor.dims) == [8, 8]]
    assert len(weights) == 1 + bool(excluded)


def test_recorded_types_of_weights_do_not_matter(tmp_path: Path) -> None:
    model = made("g (float[n, 6] x) => (float[n, 4] y) { y = Gemm <transB = 1> (x, w) }", w=normal(4, 6))
    model.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 6]))
    result = step(tmp_path, model, "dynamic_quantization")
    assert (result["outcome"], result["message"]) == ("ok", "")


def test_outputs_of_fused_operators_are_floats_for_the_quantizer(tmp_path: Path) -> None:
    text = "a = com.microsoft.FastGelu (x)\n c = MatMul (a, v)\n d = Gather (c, i)\n y = MatMul (d, w)"
    weights = {"v": normal(8, 8), "w": normal(8, 4), "i": np.array([0])}
    model = made(f"g (float[2, 8] x) => (float[1, 4] y) {{ {text} }}", domains=', "com.microsoft": 1', **weights)
    assert "MatMulInteger" in ops(saved(step(tmp_path, model, "dynamic_quantization", op_types=[])))


def test_attention_of_onnx_itself_stays_in_float(tmp_path: Path) -> None:
    model = made(
        "g (float[1, 2, 3, 16] q) => (float[1, 2, 3, 16] y) { k = MatMul (q, w)\n y = Attention (q, k, k) }",
        opset=23,
        w=normal(16, 16),
    )
    assert "Attention" in ops(saved(step(tmp_path, model, "dynamic_quantization")))
