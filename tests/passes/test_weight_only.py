"""Weight-only quantization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, outputs, saved, step
from micro_models import MODELS, branches_of_outer_weights, made, normal, scanned

from autoopt.passes.base import Refused, Retry
from autoopt.passes.onnx_tools.graphs import walk_nodes
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
    answer = WeightOnlyQuantization(algorithm="rtn", block_size=64).run(both)
    assert isinstance(answer, Retry)
    assert answer.params == {"nodes_to_exclude": ["a"]}
    with pytest.raises(Refused, match="does not divide"):
        WeightOnlyQuantization(algorithm="rtn", block_size=32).run(matmul(24))


@pytest.mark.parametrize(
    "params",
    [
        {"algorithm": "k_quant", "quant_format": "QDQ"},
        {"channel_wise": True},
        {"algorithm": "rtn", "bits": 8},
        {"quant_format": "QDQ", "bits": 8},
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


@pytest.mark.parametrize("bits", [4, 8])
def test_tables_of_gather_are_quantized_on_request(tmp_path: Path, bits: int) -> None:
    model = made(
        "g (int64[2] i) => (float[2, 64] y) { e = Gather (t, i)\n y = MatMul (e, w) }",
        t=normal(512, 64),
        w=normal(64, 64),
    )
    whole = step(tmp_path / "a", model, "weight_only_quantization", bits=bits)
    both = step(tmp_path / "b", model, "weight_only_quantization", bits=bits, embeddings=True)
    assert both["bytes"] < whole["bytes"] / 2
    feeds = {"i": np.array([3, 500])}
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(both), tmp_path, feeds)[0]) > 0.97
