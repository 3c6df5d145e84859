"""Layers ranked by quantization error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import cosine, outputs, saved, step
from micro_models import made, normal

from autoopt.passes.quantize.selective import layers_to_exclude
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import registry


def fragile() -> onnx.ModelProto:
    """Two layers; the first one's weights hold an outlier that ruins 8 bits for all others."""
    spoilt = normal(16, 16)
    spoilt[0, 0] = 3000.0
    return made(
        "g (float[N, 16] x) => (float[N, 16] y)"
        "{ [bad] a = MatMul (x, w1)\n s = Tanh (a)\n [good] b = MatMul (s, w2)\n y = Neg (b) }",
        w1=spoilt,
        w2=normal(16, 16, seed=1),
    )


def test_the_most_sensitive_layer_ranks_first(tmp_path: Path) -> None:
    report = step(tmp_path, fragile(), "layer_sensitivity", True)["reports"]["layer_sensitivity"]
    assert report["ranking"][0]["node"] == "bad"
    assert report["ranking"][0]["sqnr_db"] < report["ranking"][1]["sqnr_db"] - 10


def test_each_output_counts_the_same_whatever_its_size(tmp_path: Path) -> None:
    spoilt = normal(16, 1)
    spoilt[0, 0] = 3000.0
    model = made(
        "g (float[N, 16] x) => (float[N, 1] y, float[N, 256] state)"
        "{ [head] a = MatMul (x, w1)\n y = Sigmoid (a)\n [body] b = MatMul (x, w2)\n state = Mul (b, large) }",
        w1=spoilt,
        w2=normal(16, 256, seed=1),
        large=np.float32(1000),
    )
    ranking = step(tmp_path, model, "layer_sensitivity", True)["reports"]["layer_sensitivity"]["ranking"]
    assert [entry["node"] for entry in ranking] == ["head", "body"]


def test_excluding_it_is_more_accurate_than_quantizing_all(tmp_path: Path) -> None:
    model = fragile()
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    close = {}
    for name, params in (("static_quantization", {}), ("selective_quantization", {"exclude_worst": 1})):
        # Unsigned weights give the same results on all CPUs.
        result = step(tmp_path, model, name, True, weight_type="QUInt8", **params)
        assert result["outcome"] == "ok", result["message"]
        close[name] = cosine(expected, outputs(saved(result), tmp_path, feeds)[0])
    assert close["selective_quantization"] > 0.999 > close["static_quantization"]


@pytest.mark.parametrize(
    ("ratios", "least", "expected"),
    [
        ((10, 20, 30), 0, 0),
        ((10, 20, 30), 9, 0),
        ((10, 20, 30), 15, 1),
        ((10, 20, 30), 29, 2),
        ((10, 20, 30), 31, 3),
        ((30, 10, 30), 25, 2),
    ],
)
def test_layers_stay_in_float_until_the_noise_of_the_others_is_low(
    ratios: Sequence[float], least: float, expected: int
) -> None:
    assert layers_to_exclude([{"sqnr_db": ratio} for ratio in ratios], least) == expected


def test_a_ratio_that_no_integer_layer_leaves_is_refused(tmp_path: Path) -> None:
    result = step(tmp_path, fragile(), "selective_quantization", True, exclude_worst=1, least_sqnr_db=1000)
    assert result["outcome"] == "refused"
    assert "only with all 2 layers in float would outputs reach 1000 dB" in result["message"]


def test_a_missing_ranking_is_computed_first() -> None:
    assert "layer_sensitivity" in registry().info("selective_quantization").requires
    assert registry().info("layer_sensitivity").analysis


def test_only_the_layers_with_the_largest_error_of_their_own_are_measured_in_large_models(tmp_path: Path) -> None:
    model = fragile()
    whole = step(tmp_path / "a", model, "layer_sensitivity", True)["reports"]["layer_sensitivity"]["ranking"]
    first = step(tmp_path / "b", model, "layer_sensitivity", True, measured=1)["reports"]["layer_sensitivity"][
        "ranking"
    ]
    assert [entry["node"] for entry in first] == ["bad", "good"]
    assert first[0] == whole[0]
    assert first[1] != whole[1]


def test_layers_of_little_work_stay_in_float_before_heavy_ones_of_more_noise(tmp_path: Path) -> None:
    model = made(
        "g (float[N, 16] x) => (float[N, 2] y)"
        "{ [heavy] a = MatMul (x, w1)\n s = Tanh (a)\n [light] b = MatMul (s, w2)\n y = Neg (b) }",
        w1=normal(16, 64),
        w2=normal(64, 2, seed=1),
    )
    ranking = step(tmp_path / "a", model, "layer_sensitivity", True)["reports"]["layer_sensitivity"]["ranking"]
    work = {entry["node"]: entry["work"] for entry in ranking}
    assert work["heavy"] > 0.8
    assert abs(sum(work.values()) - 1) < 1e-5
    result = step(tmp_path / "b", model, "selective_quantization", True, exclude_worst=1, rank_by="work")
    quantized = {name for node in saved(result).graph.node for name in node.input if "w1" in name or "w2" in name}
    assert any("w1" in name for name in quantized if "quantized" in name)
    assert not any("w2" in name for name in quantized if "quantized" in name)


def test_layers_of_next_to_no_work_stay_in_float_without_being_counted(tmp_path: Path) -> None:
    """They would come first, whatever their noise, and leave those that matter in integers."""
    model = made(
        "g (float[N, 64] x) => (float[N, 1] y) { [one] a = MatMul (x, w1)\n s = Tanh (a)\n [two] b = MatMul (s, w2)\n"
        " t = Tanh (b)\n m = ReduceMean <axes = [1]> (t)\n [light] y = MatMul (m, w3) }",
        w1=normal(64, 64),
        w2=normal(64, 64, seed=1),
        w3=normal(1, 1, seed=2),
    )
    params = {"op_types": ["MatMul"], "exclude_worst": 1}
    quantized = saved(step(tmp_path / "a", model, "selective_quantization", True, **params))
    weights = {name[:2] for node in quantized.graph.node for name in node.input if "quantized" in name}
    assert weights & {"w1", "w2"}
    assert "w3" not in weights
    assert not {"w1", "w2"} <= weights
    refused = step(tmp_path / "b", model, "selective_quantization", True, **{**params, "exclude_worst": 2})
    assert refused["outcome"] == "refused"
    assert "only 2 layers have more than 0.1 % of the work" in refused["message"]
