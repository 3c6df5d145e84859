"""Quantisation: what is offered, what is written, and the guards against what the quantisers get wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import cosine, ops, outputs, saved, step, steps
from micro_models import MODELS, made, normal

from autoopt.passes.base import Refused, Retry
from autoopt.passes.quantize import calibration as ranges
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import PassInfo, registry
from autoopt.space import NodeSpace
from autoopt.target import Accelerator

VNNI = frozenset({"avx2", "avx512_vnni"})


def searched(info: PassInfo, **fixed: Any) -> NodeSpace:
    """The space of `params: search` with some values fixed."""
    search = {p.name: p.search for p in info.parameters if p.search is not None and p.name not in fixed}
    return NodeSpace(search=search, fixed=fixed, defaults={p.name: p.default for p in info.parameters})


# what is offered


@pytest.mark.parametrize("isa", [frozenset(), VNNI, frozenset({"avx2"}), frozenset({"asimd", "asimddp"})])
@pytest.mark.parametrize(
    "name", [n for n in registry().names() if registry().info(n).family in ("quantize", "precision", "runtime")]
)
def test_searching_everything_means_a_few_dozen_points(name: str, isa: frozenset[str]) -> None:
    assert 1 <= searched(registry().info(name, Accelerator(isa=isa))).count <= 48


@pytest.mark.parametrize("name", ["dynamic_quantization", "static_quantization"])
def test_seven_bit_weights_are_searched_only_where_eight_overflow(name: str) -> None:
    def offered(isa: frozenset[str]) -> bool:
        return registry().info(name, Accelerator(isa=isa)).parameter("reduce_range").search is not None

    assert offered(frozenset({"avx2"}))
    assert not offered(VNNI)
    assert not offered(frozenset({"avx2", "amx_int8"}))


def test_seven_bits_mean_nothing_for_unsigned_weights() -> None:
    space = searched(registry().info("dynamic_quantization", Accelerator(isa=frozenset({"avx2"}))))
    unsigned = [point for point in space.iterate() if point["weight_type"] == "QUInt8"]
    assert unsigned
    assert all("reduce_range" not in point for point in unsigned)


def test_types_that_no_runtime_takes_together_are_no_points() -> None:
    points = list(searched(registry().info("static_quantization")).iterate())
    pairs = {(p["quant_format"], p["activation_type"], p["weight_type"]) for p in points}
    assert pairs == {
        ("QDQ", "QInt8", "QInt8"),
        ("QDQ", "QUInt8", "QInt8"),
        ("QDQ", "QUInt8", "QUInt8"),
        ("QOperator", "QUInt8", "QUInt8"),
    }
    assert searched(registry().info("static_quantization"), quant_format="QOperator", weight_type="QInt8").count == 0


def test_signed_activations_are_for_arm() -> None:
    def activations(*isa: str) -> set[str]:
        info = registry().info("static_quantization", Accelerator(isa=frozenset(isa)))
        return {point["activation_type"] for point in searched(info, weight_type="QInt8", quant_format="QDQ").iterate()}

    assert activations("avx2") == {"QUInt8"}
    assert activations("asimd") == {"QInt8"}
    assert activations() == {"QInt8", "QUInt8"}


def test_a_default_follows_the_weight_type() -> None:
    from autoopt.passes.base.config import full_config

    info = registry().info("static_quantization")
    assert full_config(info, {"weight_type": "QUInt8"})["activation_type"] == "QUInt8"
    assert full_config(info, {})["activation_type"] == "QInt8"


def test_conflicts_hold_both_ways() -> None:
    for a in ("dynamic_quantization", "static_quantization", "float16", "mixed_float16", "nncf_quantization"):
        for b in ("dynamic_quantization", "static_quantization", "fp8_quantization"):
            assert b in registry().info(a).conflicts
    assert "float16" in registry().info("static_w4").conflicts
    assert "float16" not in registry().info("weight_only_quantization").conflicts


# dynamic


def test_dynamic_quantises_matmul_and_leaves_conv_where_asked(tmp_path: Path) -> None:
    assert "MatMulInteger" in ops(saved(step(tmp_path, MODELS["mlp"](), "dynamic_quantization")))
    assert "ConvInteger" in ops(saved(step(tmp_path, MODELS["small_cnn"](), "dynamic_quantization")))
    result = step(tmp_path, MODELS["small_cnn"](), "dynamic_quantization", op_types=["MatMul"])
    assert "Conv" in ops(saved(result))
    assert "ConvInteger" not in ops(saved(result))


@pytest.mark.parametrize("name", ["trees", "svm", "tfidf", "branches", "relu_only"])
@pytest.mark.parametrize(
    "quantisation", ["dynamic_quantization", "static_quantization", "weight_only_quantization", "bnb4_quantization"]
)
def test_nothing_to_quantise_is_unchanged(tmp_path: Path, name: str, quantisation: str) -> None:
    if name == "relu_only" and quantisation == "static_quantization":
        pytest.skip("a Relu has a quantised form")
    data = quantisation == "static_quantization" and name not in ("tfidf", "branches")
    if quantisation == "static_quantization" and not data:
        pytest.skip("no synthetic calibration file of texts and scalars")
    assert step(tmp_path, MODELS[name](), quantisation, data)["outcome"] == "unchanged"


# static


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
def test_static_quantisation_stays_close(tmp_path: Path, params: dict[str, Any]) -> None:
    model = MODELS["small_cnn"]()
    result = step(tmp_path, model, "static_quantization", True, **params)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.97


def test_entropy_is_not_minmax_in_disguise(tmp_path: Path) -> None:
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


def test_impossible_types_are_refused(tmp_path: Path) -> None:
    model = MODELS["small_cnn"]()
    asked = {"activation_type": "QInt8", "weight_type": "QUInt8"}
    assert step(tmp_path, model, "static_quantization", True, **asked)["outcome"] == "refused"
    result = step(tmp_path, model, "static_quantization", True, calibrate_method="Distribution")
    assert (result["outcome"], "float8" in result["message"]) == ("refused", True)


def test_static_quantisation_without_data_is_refused(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["small_cnn"](), "static_quantization")["outcome"] == "refused"


def test_points_that_differ_only_in_types_share_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    real = ranges._compute

    def counting(model: Any, feeds: Any, method: str, *rest: Any) -> None:
        computed.append(method)
        real(model, feeds, method, *rest)

    monkeypatch.setattr(ranges, "_compute", counting)
    monkeypatch.setattr(ranges, "_cache", type(ranges._cache)())
    model = MODELS["small_cnn"]()
    for params in ({}, {"per_channel": True}, {"weight_type": "QUInt8"}, {"calibrate_method": "Percentile"}):
        assert step(tmp_path, model, "static_quantization", True, **params)["outcome"] == "ok"
    assert computed == ["MinMax", "Percentile"]


def test_a_copied_bias_does_not_take_the_name_of_another_value(tmp_path: Path) -> None:
    """The quantiser copies the shared bias `b` as `b2` (its suffix), and `b2` is a value of the graph already."""
    model = made(
        "g (float[1, 2, 6, 6] x) => (float[1, 2, 4, 4] y)"
        "{ c = Conv (x, w, b)\n b1 = Conv (x, w2, b)\n s = Neg (b1)\n y = Add (c, s) }",
        w=normal(2, 2, 3, 3),
        w2=normal(2, 2, 3, 3, seed=1),
        b=normal(2),
    )
    result = step(tmp_path, model, "static_quantization", True)
    assert result["outcome"] == "ok", result["message"]
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.98


def test_a_bias_with_leading_ones_is_quantised_per_channel(tmp_path: Path) -> None:
    model = made(
        "g (float[4, 8] x) => (float[4, 8] y) { n = LayerNormalization (x, s, b)\n y = MatMul (n, w) }",
        s=normal(8),
        b=normal(1, 8),
        w=normal(8, 8),
    )
    result = step(tmp_path, model, "static_quantization", True, per_channel=True)
    assert result["outcome"] == "ok", result["message"]
    assert result["attempts"] == []


def test_operators_that_the_quantiser_cannot_take_are_left_out(tmp_path: Path) -> None:
    """A Softmax behind an operator of unknown type has no range, and the quantiser stops at it."""
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y) { a = MatMul (x, w)\n"
        " f = ai.onnx.ml.Scaler <offset = [0.0], scale = [1.0]> (a)\n y = Softmax (f) }",
        domains=', "ai.onnx.ml": 2',
        w=normal(4, 4),
    )
    results = steps(tmp_path, model, [("name_fix", {}), ("static_quantization", {})], True)
    assert results[-1]["outcome"] == "ok", results[-1]["message"]


def test_preparation_goes_on_without_symbolic_shapes(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["trees"](), "quant_pre_process")
    assert result["outcome"] in ("ok", "unchanged")
    assert [attempt["params"]["skip_symbolic_shape"] for attempt in result["attempts"]] == [False]
    assert result["params"]["skip_symbolic_shape"] is True


# other types


@pytest.mark.parametrize(
    ("name", "params", "close"),
    [
        ("static_16bit", {}, 0.999),
        ("static_16bit", {"activation_type": "QInt16", "weight_type": "QUInt8"}, 0.999),
        ("static_w4", {}, 0.9),
        ("static_w4", {"weight_type": "QUInt4", "activation_type": "QUInt16", "per_channel": True}, 0.95),
    ],
)
def test_wide_and_narrow_types(tmp_path: Path, name: str, params: dict[str, Any], close: float) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, name, True, **params)
    assert result["outcome"] == "ok", result["message"]
    assert max(entry.version for entry in saved(result).opset_import if entry.domain == "") >= 21
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > close


def test_float8_pins_the_cpu_session_to_the_one_level_that_computes_it_right(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, "fp8_quantization", True)
    assert result["session_options"] == {"graph_optimization_level": "disable"}
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    found = outputs(saved(result), tmp_path, feeds, result["session_options"])[0]
    assert cosine(expected, found) > 0.99
    with pytest.raises(Exception, match=r"INVALID_GRAPH|NOT_IMPLEMENTED|float8"):
        outputs(saved(result), tmp_path, feeds)


def test_nothing_may_raise_the_level_behind_float8() -> None:
    for name in ("session_tuning", "ort_graph_optimization"):
        assert "fp8_quantization" in registry().info(name).conflicts
    assert "session_tuning" in registry().info("fp8_quantization").conflicts


def test_float8_needs_bins(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "fp8_quantization", True, num_bins=100)["outcome"] == "refused"


# weights only


@pytest.mark.parametrize(
    ("params", "close"),
    [
        ({}, 0.97),
        ({"bits": 8, "accuracy_level": 4}, 0.999),
        ({"bits": 2, "block_size": 16}, 0.7),
        ({"is_symmetric": False}, 0.97),
        ({"algorithm": "rtn"}, 0.97),
        ({"algorithm": "rtn", "is_symmetric": False}, 0.97),
        ({"algorithm": "k_quant"}, 0.97),
        ({"quant_format": "QDQ"}, 0.97),
        ({"quant_format": "QDQ", "channel_wise": True}, 0.97),
    ],
)
def test_weight_only(tmp_path: Path, params: dict[str, Any], close: float) -> None:
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
def test_a_block_size_that_does_not_fit_is_made_smaller(
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


def test_what_no_block_size_fits_is_left_out_and_alone_refused() -> None:
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
def test_settings_that_exclude_each_other_are_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    assert step(tmp_path, MODELS["mlp"](), "weight_only_quantization", **params)["outcome"] == "refused"


@pytest.mark.parametrize("kind", ["FP4", "NF4"])
def test_four_bit_floats(tmp_path: Path, kind: str) -> None:
    model = matmul(64, 2)
    result = step(tmp_path, model, "bnb4_quantization", quant_type=kind)
    assert "MatMulBnb4" in ops(saved(result))
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.95


# sensitivity


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


def test_the_layer_that_suffers_most_ranks_first(tmp_path: Path) -> None:
    report = step(tmp_path, fragile(), "layer_sensitivity", True)["reports"]["layer_sensitivity"]
    assert report["ranking"][0]["node"] == "bad"
    assert report["ranking"][0]["sqnr_db"] < report["ranking"][1]["sqnr_db"] - 10


def test_leaving_it_out_is_more_accurate_than_quantising_all(tmp_path: Path) -> None:
    model = fragile()
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    close = {}
    for name, params in (("static_quantization", {}), ("selective_quantization", {"exclude_worst": 1})):
        result = step(tmp_path, model, name, True, **params)
        assert result["outcome"] == "ok", result["message"]
        close[name] = cosine(expected, outputs(saved(result), tmp_path, feeds)[0])
    assert close["selective_quantization"] > 0.999 > close["static_quantization"]


def test_the_ranking_is_computed_before_where_the_chain_lacks_it() -> None:
    assert "layer_sensitivity" in registry().info("selective_quantization").requires
    assert registry().info("layer_sensitivity").analysis


def test_float_weights_of_many_kinds_stay_finite(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["gemm_mlp"](), "static_quantization", True, per_channel=True)
    for tensor in saved(result).graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            assert np.isfinite(array).all()


def test_a_gemm_left_out_of_dynamic_quantisation_stays_in_float(tmp_path: Path) -> None:
    model = MODELS["gemm_mlp"]()
    gemms = [node.name for node in model.graph.node if node.op_type == "Gemm"]
    whole = step(tmp_path / "a", model, "dynamic_quantization", False)
    none = step(tmp_path / "b", model, "dynamic_quantization", False, nodes_to_exclude=gemms)
    assert whole["outcome"] == "ok"
    assert none["outcome"] == "unchanged"


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"percentile": 99.9}, "no effect with calibrate_method MinMax"),
        ({"calibrate_method": "Percentile", "percentile": -1.0}, "above 0"),
        ({"calibrate_method": "Entropy", "moving_average": True}, "no effect with calibrate_method Entropy"),
        ({"samples": -1}, "samples at least 0"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(tmp_path: Path, params: dict[str, Any], reason: str) -> None:
    result = step(tmp_path, MODELS["gemm_mlp"](), "static_quantization", True, **params)
    assert result["outcome"] == "refused"
    assert reason in result["message"]
