"""Static 8-bit quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import cosine, ops, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import PassInfo, registry
from autoopt.space import NodeSpace
from autoopt.target import Accelerator

VNNI = frozenset({"avx2", "avx512_vnni"})


def searched(info: PassInfo, **fixed: Any) -> NodeSpace:
    """The space of `params: search` with some values fixed."""
    search = {p.name: p.search for p in info.parameters if p.search is not None and p.name not in fixed}
    return NodeSpace(search=search, fixed=fixed, defaults={p.name: p.default for p in info.parameters})


@pytest.mark.parametrize("isa", [frozenset(), VNNI, frozenset({"avx2"}), frozenset({"asimd", "asimddp"})])
@pytest.mark.parametrize(
    "name", [n for n in registry().names() if registry().info(n).family in ("quantize", "precision", "runtime")]
)
def test_the_search_space_has_a_few_dozen_points(name: str, isa: frozenset[str]) -> None:
    assert 1 <= searched(registry().info(name, Accelerator(isa=isa))).count <= 48


def test_unsupported_combinations_of_types_are_not_searched() -> None:
    points = list(searched(registry().info("static_quantization")).iterate())
    pairs = {(p["quant_format"], p["activation_type"], p["weight_type"]) for p in points}
    assert pairs == {
        ("QDQ", "QInt8", "QInt8"),
        ("QDQ", "QUInt8", "QInt8"),
        ("QDQ", "QUInt8", "QUInt8"),
        ("QOperator", "QUInt8", "QUInt8"),
    }
    assert searched(registry().info("static_quantization"), quant_format="QOperator", weight_type="QInt8").count == 0


def test_a_default_follows_the_weight_type() -> None:
    from autoopt.passes.base.build import full_config

    info = registry().info("static_quantization", Accelerator(isa=frozenset({"asimddp"})))
    assert full_config(info, {"weight_type": "QUInt8"})["activation_type"] == "QUInt8"
    assert full_config(info, {})["activation_type"] == "QInt8"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"calibrate_method": "Entropy"},
        {"calibrate_method": "Percentile", "percentile": 99.9},
        {"moving_average": True},
        {"per_channel": True, "reduce_range": True},
        {"quant_format": "QOperator", "weight_type": "QUInt8"},
        {"weight_type": "QUInt8", "weight_symmetric": True},
        {"activation_symmetric": True},
        {"op_types": ["Conv"]},
        {"samples": 2},
    ],
)
def test_the_outputs_stay_close(tmp_path: Path, params: dict[str, Any]) -> None:
    model = MODELS["small_cnn"]()
    result = step(tmp_path, model, "static_quantization", True, **params)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.97


def test_entropy_and_minmax_give_different_ranges(tmp_path: Path) -> None:
    """With onnxruntime's own 128 bins the entropy search has one candidate: the full range."""
    model = MODELS["small_cnn"]()
    digests = {
        (method, bins): step(
            tmp_path,
            model,
            "static_quantization",
            True,
            calibrate_method=method,
            **({"num_bins": bins} if bins else {}),
        )["digest"]
        for method, bins in (("MinMax", 0), ("Entropy", 128), ("Entropy", 0))
    }
    assert digests["MinMax", 0] == digests["Entropy", 128]
    assert digests["Entropy", 0] != digests["MinMax", 0]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"activation_type": "QInt8", "weight_type": "QUInt8"}, "does not support activation_type QInt8"),
        ({"weight_type": "QInt4", "quant_format": "QOperator"}, "only quant_format QDQ"),
        ({"weight_type": "QFLOAT8E4M3FN", "calibrate_method": "Entropy"}, "no effect with float8"),
        ({"weight_type": "QFLOAT8E4M3FN", "num_bins": 100}, "num_bins must be at least 512"),
        ({"percentile": 99.9}, "no effect with calibrate_method MinMax"),
        ({"calibrate_method": "Percentile", "percentile": -1.0}, "above 0"),
        ({"calibrate_method": "Entropy", "moving_average": True}, "no effect with calibrate_method Entropy"),
        ({"samples": -1}, "samples at least 0"),
    ],
)
def test_settings_that_are_impossible_or_without_effect_are_refused(
    tmp_path: Path, params: dict[str, Any], reason: str
) -> None:
    result = step(tmp_path, MODELS["gemm_mlp"](), "static_quantization", True, **params)
    assert (result["outcome"], reason in result["message"]) == ("refused", True), result["message"]


def test_without_data_it_is_refused(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["small_cnn"](), "static_quantization")["outcome"] == "refused"


def test_recurrent_layers_are_quantized_at_run_time_on_request(tmp_path: Path) -> None:
    model = made(
        "g (float[5, 1, 8] x) => (float[5, 1, 16] y)"
        "{ h, last = LSTM <hidden_size = 16> (x, w, r)\n s = Squeeze (h, one)\n y = MatMul (s, v) }",
        w=normal(1, 64, 8),
        r=normal(1, 64, 16),
        v=normal(16, 16),
        one=np.array([1]),
    )
    result = step(tmp_path, model, "static_quantization", True, dynamic_ops=["LSTM"])
    assert {"DynamicQuantizeLSTM", "QuantizeLinear"} <= set(ops(saved(result))), result["message"]
    assert "LSTM" in ops(saved(step(tmp_path / "plain", model, "static_quantization", True)))


def test_products_are_quantized_at_run_time_beside_static_convolutions(tmp_path: Path) -> None:
    model = made(
        "g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 8] y) "
        "{ c = Conv <pads = [1, 1, 1, 1]> (x, k)\n y = MatMul (c, w) }",
        k=normal(2, 2, 3, 3),
        w=normal(4, 8),
    )
    params = {"op_types": ["Conv"], "dynamic_ops": ["MatMul"]}
    result = step(tmp_path, model, "static_quantization", True, **params)
    assert {"Conv", "QuantizeLinear", "MatMulInteger"} <= set(ops(saved(result))), result["message"]


def test_nodes_that_bodies_read_come_before_them(tmp_path: Path) -> None:
    branch = "{}_branch = {} () => (float[1, 4] {}) {{ {} = {} (n) }}"
    branches = f"{branch.format('then', 't', 'a', 'a', 'Relu')}, {branch.format('else', 'e', 'b', 'b', 'Neg')}"
    model = made(
        "g (float[1, 4] x, bool[1] c) => (float[1, 4] y)"
        f"{{ m = MatMul (x, w)\n n = MatMul (m, w)\n i = If <{branches}> (c)\n y = MatMul (i, w) }}",
        w=normal(4, 4),
    )
    result = step(tmp_path, model, "static_quantization", True)
    assert result["outcome"] == "ok", result["message"]


@pytest.mark.parametrize(
    ("name", "params", "close"),
    [
        ("static_16bit", {}, 0.999),
        ("static_16bit", {"activation_type": "QInt16", "weight_type": "QUInt8"}, 0.999),
        ("static_w4", {}, 0.9),
        ("static_w4", {"weight_type": "QUInt4", "activation_type": "QUInt16", "per_channel": True}, 0.95),
    ],
)
def test_other_types_stay_close(tmp_path: Path, name: str, params: dict[str, Any], close: float) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, name, True, **params)
    assert result["outcome"] == "ok", result["message"]
    assert max(entry.version for entry in saved(result).opset_import if entry.domain == "") >= 21
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > close


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_the_cpu_computes_float8_with_graph_optimization(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    result = step(tmp_path, model, "fp8_quantization", True)
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    assert cosine(expected, outputs(saved(result), tmp_path, feeds)[0]) > 0.99
