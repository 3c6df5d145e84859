"""Weight-only quantization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import cosine, ops, outputs, saved, step
from micro_models import MODELS, branches_of_outer_weights, made, normal, scanned
from onnx import numpy_helper

from autoopt.passes.base import Refused, Retry
from autoopt.passes.onnx_tools.graphs import attribute_values, walk_nodes
from autoopt.passes.quantize.block_weights import BlockGrid
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


@pytest.mark.parametrize(
    ("params", "close"),
    [
        ({}, 0.97),
        ({"bits": 8}, 0.999),
        ({"bits": 2, "block_size": 16}, 0.7),
        ({"is_symmetric": False}, 0.97),
        ({"algorithm": "rtn"}, 0.97),
        ({"algorithm": "rtn", "is_symmetric": False}, 0.97),
        ({"algorithm": "k_quant"}, 0.97),
        ({"algorithm": "k_quant", "bits": 8}, 0.999),
        ({"quant_format": "QDQ"}, 0.97),
        ({"quant_format": "QDQ", "channel_wise": True}, 0.97),
    ],
)
def test_weight_only_quantization_stays_close(tmp_path: Path, params: dict[str, Any], close: float) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, "weight_only_quantization", **params)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > close


def matmul(inner: int, count: int = 1) -> onnx.ModelProto:
    weights = {f"w{i}": normal(inner, inner, seed=i) for i in range(count)}
    body = "\n".join(f"h{i + 1} = MatMul (h{i}, w{i})" for i in range(count))
    return made(f"g (float[2, {inner}] h0) => (float[2, {inner}] h{count}) {{ {body} }}", **weights)


@pytest.mark.parametrize(
    ("algorithm", "symmetric", "inner", "block", "then"),
    [
        ("rtn", True, 96, 128, 32),
        ("rtn", False, 96, 128, 16),
        ("k_quant", True, 96, 32, 16),
        ("k_quant", True, 128, 128, 64),
    ],
)
def test_a_block_size_that_does_not_fit_is_reduced(
    tmp_path: Path, algorithm: str, symmetric: bool, inner: int, block: int, then: int
) -> None:
    result = step(
        tmp_path,
        matmul(inner),
        "weight_only_quantization",
        algorithm=algorithm,
        is_symmetric=symmetric,
        block_size=block,
    )
    assert result["outcome"] == "ok", result["message"]
    assert [attempt["params"]["block_size"] for attempt in result["attempts"]] == [block]
    assert "does not divide" in result["attempts"][0]["reason"]
    assert result["params"]["block_size"] == then


def test_matmuls_that_no_block_size_fits_are_excluded() -> None:
    both = made(
        "g (float[2, 24] x) => (float[2, 64] y) { [a] h = MatMul (x, v)\n [b] y = MatMul (h, w) }",
        v=normal(24, 64),
        w=normal(64, 64),
    )
    answer = WeightOnlyQuantization(algorithm="rtn", block_size=64).run(ir.from_proto(both))
    assert isinstance(answer, Retry)
    assert answer.params == {"nodes_to_exclude": ["a"]}
    with pytest.raises(Refused, match="does not divide"):
        WeightOnlyQuantization(algorithm="rtn", block_size=32)(matmul(24))


@pytest.mark.parametrize(
    "params",
    [
        {"algorithm": "k_quant", "quant_format": "QDQ"},
        {"channel_wise": True},
        {"algorithm": "rtn", "bits": 8},
        {"quant_format": "QDQ", "bits": 8},
        {"quant_format": "QDQ", "embedding_bits": 4},
        {"quant_format": "QDQ", "head_bits": 8},
    ],
)
def test_contradicting_settings_are_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    assert step(tmp_path, MODELS["mlp"](), "weight_only_quantization", **params)["outcome"] == "refused"


@pytest.mark.parametrize("name", ["weight_only_quantization", "bnb4_quantization"])
def test_weights_of_gemm_are_quantized(tmp_path: Path, name: str) -> None:
    model = made(
        "g (float[2, 64] x) => (float[2, 32] y) { y = Gemm <transB = 1> (x, w, b) }", w=normal(32, 64), b=normal(32)
    )
    op_types = [node.op_type for node in saved(step(tmp_path, model, name)).graph.node]
    assert op_types[0].startswith("MatMul")
    assert op_types[0] != "MatMul"
    assert op_types[1:] == ["Add"]


@pytest.mark.parametrize("name", ["weight_only_quantization", "bnb4_quantization"])
@pytest.mark.parametrize("create", [branches_of_outer_weights, scanned])
def test_weights_in_bodies_are_quantized(tmp_path: Path, name: str, create: Callable[[], onnx.ModelProto]) -> None:
    quantized = saved(step(tmp_path, create(), name, block_size=16))
    inner = {node.op_type for node in walk_nodes(quantized.graph)}
    assert inner & {"MatMulNBits", "MatMulBnb4"}
    assert not inner & {"MatMul", "Gemm"}


def language_model(kind: str) -> onnx.ModelProto:
    """A table of 96 tokens, a layer, and the table again as the LM head, in one of the ways of exporters."""
    head = {
        "twice": "y = MatMul (h, t2)",
        "transposed": "w = Transpose (t)\n y = MatMul (h, w)",
        "gemm": "y = Gemm <transB = 1> (h, t)",
        "apart": "y = MatMul (h, v)",
    }[kind]
    weights = {"t": normal(96, 64), "u": normal(64, 64, seed=1)}
    if kind == "twice":
        weights["t2"] = np.ascontiguousarray(weights["t"].T)
    if kind == "apart":
        weights["v"] = normal(64, 96, seed=2)
    text = f"g (int64[N] i) => (float[N, 96] y) {{ e = Gather (t, i)\n [layer] h = MatMul (e, u)\n {head} }}"
    return made(text, **weights)


TOKENS = {"i": np.array([0, 3, 95, -1])}


def bits_of_products(model: onnx.ModelProto) -> list[int]:
    nodes = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    return [attribute_values(node)["bits"] for node in nodes]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_tables_of_gather_are_quantized_on_request(tmp_path: Path, bits: int, symmetric: bool) -> None:
    model = language_model("apart")
    params = {"nodes_to_exclude": ["layer"], "head_bits": 32, "embedding_bits": bits, "is_symmetric": symmetric}
    quantized = saved(step(tmp_path, model, "weight_only_quantization", **params))
    assert {"GatherBlockQuantized", "MatMul"} == {*ops(quantized)}
    table = numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == "t"))
    rounded = BlockGrid(bits, 32, symmetric).rounded(np.ascontiguousarray(table.T)).T
    quantized.graph.output[0].name = quantized.graph.node[0].output[0]
    np.testing.assert_allclose(outputs(quantized, tmp_path, TOKENS)[0], rounded[TOKENS["i"]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["twice", "transposed", "gemm"])
@pytest.mark.parametrize(
    "params",
    [
        {"embedding_bits": 4},
        {"embedding_bits": 4, "is_symmetric": False},
        {"embedding_bits": 8, "head_bits": 8},
        {"embedding_bits": 4, "algorithm": "k_quant"},
    ],
)
def test_a_tied_table_is_stored_once(tmp_path: Path, kind: str, params: dict[str, Any]) -> None:
    quantized = saved(step(tmp_path, language_model(kind), "weight_only_quantization", **params))
    large = [tensor for tensor in quantized.graph.initializer if tensor.data_type == onnx.TensorProto.UINT8]
    levels = [tensor for tensor in large if len(tensor.dims) == 3]
    assert sorted(tensor.dims[0] for tensor in levels) == [64, 96], "one table and the layer"
    untied = saved(
        step(tmp_path, language_model("twice"), "weight_only_quantization", **{**params, "embedding_bits": 0})
    )
    before, after = (outputs(model, tmp_path, TOKENS)[0] for model in (untied, quantized))
    assert cosine(before, after) > 0.97


def test_a_table_with_other_bits_than_its_product_is_stored_too(tmp_path: Path) -> None:
    model = language_model("twice")
    quantized = saved(step(tmp_path, model, "weight_only_quantization", embedding_bits=8))
    assert {"GatherBlockQuantized", "MatMulNBits"} == {*ops(quantized)}
    assert cosine(outputs(model, tmp_path, TOKENS)[0], outputs(quantized, tmp_path, TOKENS)[0]) > 0.97


@pytest.mark.parametrize(("head_bits", "bits"), [(0, [4, 4]), (8, [4, 8]), (32, [4])])
@pytest.mark.parametrize("algorithm", ["default", "rtn", "k_quant"])
def test_the_head_has_bits_of_its_own(tmp_path: Path, algorithm: str, head_bits: int, bits: list[int]) -> None:
    params = {"algorithm": algorithm, "head_bits": head_bits}
    quantized = saved(step(tmp_path, language_model("apart"), "weight_only_quantization", **params))
    assert bits_of_products(quantized) == bits


@pytest.mark.parametrize(
    ("tail", "bits"), [("c = Add (p, b)\n y = Softmax (c)", [4, 8]), ("c = Add (p, h)\n y = Softmax (c)", [4, 4])]
)
def test_the_head_is_the_product_that_nothing_but_scales_and_the_like_follow(
    tmp_path: Path, tail: str, bits: list[int]
) -> None:
    text = f"g (float[N, 64] x) => (float[N, 64] y) {{ h = MatMul (x, u)\n p = MatMul (h, v)\n {tail} }}"
    model = made(text, u=normal(64, 64), v=normal(64, 64, seed=1), b=normal(64))
    assert bits_of_products(saved(step(tmp_path, model, "weight_only_quantization", head_bits=8))) == bits


def test_a_head_in_float_stays_tied(tmp_path: Path) -> None:
    model = language_model("transposed")
    quantized = saved(step(tmp_path, model, "weight_only_quantization", head_bits=32))
    floats = [tensor for tensor in quantized.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    assert [list(tensor.dims) for tensor in floats if tensor.dims[0] in (64, 96) and tensor.dims[-1] > 2] == [[96, 64]]


def test_a_table_that_no_block_divides_stays_in_float(tmp_path: Path) -> None:
    model = made(
        "g (int64[N] i) => (float[N, 40] e, float[N, 48] f) { e = Gather (t, i)\n f = Gather (s, i) }",
        t=normal(96, 40),
        s=normal(96, 48),
    )
    assert {*ops(saved(step(tmp_path, model, "weight_only_quantization", embedding_bits=8)))} == {
        "Gather",
        "GatherBlockQuantized",
    }


@pytest.mark.parametrize("kind", ["FP4", "NF4"])
def test_quantizes_weights_to_4_bit_floats(tmp_path: Path, kind: str) -> None:
    model = matmul(64, 2)
    result = step(tmp_path, model, "bnb4_quantization", quant_type=kind)
    assert "MatMulBnb4" in ops(saved(result))
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.95
