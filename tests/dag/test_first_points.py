"""The points that the search of a proposal starts with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from proposal_cases import CNN, TRANSFORMER, TREES, inputs_of, model, proposed

from autoopt.dag import Facts, pass_infos
from autoopt.dag.proposal.propose import propose
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.spec.proposal_options import ProposalOptions


def first(inspection: Inspection, options: ProposalOptions | None = None) -> dict[str, list[dict[str, object]]]:
    """Chain -> the points that it starts with, their lossy nodes only."""
    _, plan = proposed(inspection, options)
    points: dict[str, list[dict[str, object]]] = {}
    for chain in plan.chains():
        for point in chain.prior:
            lossy = {**point.get("static", {}), **point.get("dynamic", {}), **point.get("selective", {})}
            points.setdefault(chain.name, []).append(lossy)
    return points


def test_all_preparation_comes_before_each_kind_of_quantization() -> None:
    points = first(CNN)
    assert points["names -> simplify -> fold"] == [{}]
    everything, layers = points["names -> simplify -> fold -> static"]
    assert everything["op_types"] == []
    assert layers["op_types"] == ["Conv", "Gemm", "MatMul"]
    assert everything["activation_type"] == layers["activation_type"] == "QUInt8"
    assert "names -> simplify -> fuse -> dynamic -> residuals" in first(TRANSFORMER)


def test_a_quantized_model_is_prepared_as_it_is_and_in_float() -> None:
    points = first(model("MatMulInteger", "DynamicQuantizeLinear", "DequantizeLinear", "MatMul"))
    chains = [chain for chain in points if not {"static", "dynamic", "selective", "weights"} & set(chain.split(" -> "))]
    assert "names -> simplify" in chains
    assert "names -> dequantize -> simplify" in chains


def test_recurrent_layers_are_tried_at_run_time_before_they_stay_in_float() -> None:
    static = first(model("Conv", "LSTM", "MatMul"))["names -> simplify -> states -> static"]
    assert [values["dynamic_ops"] for values in static] == [["LSTM"], ["LSTM"], []]


def test_small_recurrent_models_are_tried_in_integers_on_one_thread_too() -> None:
    options = ProposalOptions(threads="1,all")
    on_one_thread = "names -> simplify -> states -> dynamic -> session"
    assert on_one_thread in first(model("LSTM", "MatMul"), options)
    assert on_one_thread not in first(model("LSTM", "MatMul", parameters=5_000_000), options)
    assert on_one_thread.replace("states -> ", "") not in first(model("MatMul"), options)


def test_a_model_of_quantizers_begins_as_it_is_with_unsigned_activations() -> None:
    _, plan = proposed(model("Conv", "QuantizeLinear", "DequantizeLinear"))
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    assert max(weights, key=weights.__getitem__) == "names -> unsigned -> simplify"
    assert not any("unsigned" in chain and "static" in chain for chain in weights)


def test_the_layers_of_a_model_with_attention_are_quantized_first() -> None:
    points = first(model("Conv", "MatMul", "Erf", "Add"))["names -> simplify -> static"]
    heavy, products_at_run_time, everything = [(values["op_types"], values["dynamic_ops"]) for values in points]
    assert heavy == (["Conv", "Gemm", "MatMul"], [])
    assert products_at_run_time == (["Conv"], ["MatMul"])
    assert everything == ([], [])
    assert all(values["op_types"] for values in first(TRANSFORMER)["names -> simplify -> static -> residuals"])


def test_products_are_at_run_time_where_convolutions_alone_are_static() -> None:
    _, plan = proposed(model("Conv", "MatMul", "Erf", "Add"))
    pairs = set()
    for chain in plan.chains():
        for point in chain.space.iterate():
            if "static" in point:
                pairs.add((tuple(point["static"]["op_types"]), tuple(point["static"]["dynamic_ops"])))
    assert pairs == {((), ()), (("Conv", "Gemm", "MatMul"), ()), (("Conv",), ("MatMul",))}


def test_products_meet_static_quantization_with_their_biases_and_outside_a_fused_attention() -> None:
    _, plan = proposed(TRANSFORMER)
    engines: dict[str, set[str]] = {}
    for chain in plan.chains():
        for point in chain.prior:
            engines.setdefault(chain.name, set()).add(point["simplify"]["engine"])
    assert engines["names -> simplify -> static -> residuals"] == {"onnxsim"}
    assert engines["names -> simplify -> fuse -> dynamic -> residuals"] == {"onnxslim"}
    assert "names -> simplify -> fuse -> static" not in engines


def test_one_thread_is_tried_first_for_small_models() -> None:
    _, plan = proposed(CNN, ProposalOptions(threads="1,all"))
    (chain,) = [chain for chain in plan.chains() if chain.name == "names -> simplify -> fold -> session"]
    assert [point["session"]["intra_op_num_threads"] for point in chain.prior] == [1]
    _, plan = proposed(replace(CNN, parameters=10_000_000), ProposalOptions(threads="1,all"))
    assert not any(point.get("session") for chain in plan.chains() for point in chain.prior), "its work is divided"


def test_nothing_lossy_is_tried_first_where_nothing_lossy_is_tried() -> None:
    assert list(first(TREES)) == []
    assert list(first(CNN, ProposalOptions(level=1))) == ["names -> simplify -> fold"]


def test_models_with_convolutions_begin_with_static_quantization() -> None:
    chains = list(first(model("Conv", "MatMul", "Relu", layer_parameters={"Conv": 1000, "MatMul": 9000})))
    lossy = [chain.removeprefix("names -> simplify -> ") for chain in chains]
    assert [chain for chain in lossy if chain in ("static", "dynamic")] == ["static", "dynamic"]


def test_convolutions_with_the_least_work_are_left_in_float_early() -> None:
    points = first(CNN)["names -> simplify -> fold -> selective"]
    ranked = [(values["exclude_worst"], values["rank_by"]) for values in points]
    assert ranked == [(2, "noise_for_work"), (2, "noise_for_work"), (3, "work")]


def test_the_noise_decides_how_many_of_many_layers_stay_in_float() -> None:
    points = first(replace(CNN, op_counts={**CNN.op_counts, "Conv": 9}))["names -> simplify -> fold -> selective"]
    counts = [(values["exclude_worst"], values["least_sqnr_db"]) for values in points]
    assert counts == [(2, 0), (2, 0), (1, 32), (3, 0)]


@pytest.mark.parametrize(("conv", "weight"), [(49, 1.0), (50, 0.99)])
def test_dynamic_quantization_comes_late_where_convolutions_hold_most_of_the_weights(conv: int, weight: float) -> None:
    _, plan = proposed(model("Conv", "MatMul", "Relu", layer_parameters={"Conv": conv, "MatMul": 100 - conv}))
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    assert weights["names -> simplify -> dynamic"] == weight
    assert weights["names -> simplify -> static"] == 1.0


@pytest.mark.parametrize(
    ("clips", "divisions", "place"), [(4, 0, "last"), (4, 3, "last"), (4, 4, "first"), (1, 5, "last"), (5, 5, "last")]
)
def test_preparation_comes_first_where_hard_sigmoids_are_in_single_operators(
    clips: int, divisions: int, place: str
) -> None:
    counts = {"Conv": 9, "Add": 4, "Clip": clips, "Div": divisions}
    _, plan = proposed(replace(CNN, op_counts=counts))
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    preparation = weights["names -> simplify -> activations"]
    assert preparation == (max(weights.values()) if place == "first" else min(weights.values()))


@pytest.mark.parametrize(
    ("changes", "place"), [({}, "last"), ({"overridable": ("w",)}, "first"), ({"parameters": 2_000_000}, "first")]
)
def test_lossless_preparation_comes_first_where_it_surely_gains_or_quantization_takes_long(
    changes: dict[str, Any], place: str
) -> None:
    _, plan = proposed(replace(CNN, **changes))
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    lossy = {"static", "dynamic", "selective"}
    lossless = [weight for chain, weight in weights.items() if lossy.isdisjoint(chain.split(" -> "))]
    assert max(lossless) == (max(weights.values()) if place == "first" else min(weights.values()))


@pytest.mark.parametrize(("isa", "per_channel"), [({"avx2"}, False), ({"avx2", "avx_vnni"}, True), (set(), True)])
def test_dense_models_begin_with_one_scale_for_all_channels_without_instructions_for_integers(
    isa: set[str], per_channel: bool
) -> None:
    options = ProposalOptions()
    accelerator = replace(options.target().accelerator(), isa=frozenset(isa))
    infos = pass_infos(accelerator)
    plan = propose(options, inputs_of(model("MatMul", "Relu")), infos, Facts(accelerator)).plan(infos)
    points = [point["static"] for chain in plan.chains() for point in chain.prior if "static" in point]
    assert points[0]["per_channel"] is per_channel


def test_the_original_precision_is_left_out_if_another_one_is_required() -> None:
    chains = first(CNN, ProposalOptions(precision="int8"))
    assert chains
    assert "names -> simplify -> fold" not in chains


def decoder(parameters: int = 1_000_000) -> Inspection:
    shapes = {"input_ids": ("N", "T"), "past_key_values.0.key": ("N", 2, "P", 4)}
    inputs = tuple(ValueSpec(name, "int64", shape) for name, shape in shapes.items())
    outputs = (ValueSpec("present.0.key", "float32", ("N", 2, "P + T", 4)),)
    operators = model("MatMul", "Gather", "LayerNormalization", parameters=parameters)
    return replace(operators, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("parameters", "first"),
    [
        (1_000_000, "names -> simplify -> fuse -> residuals"),
        (1_000_000_000, "names -> simplify -> fuse -> weights -> residuals"),
    ],
)
def test_large_decoders_begin_with_few_bits_whatever_other_models_teach(parameters: int, first: str) -> None:
    _, plan = proposed(decoder(parameters))
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    assert max(weights, key=weights.__getitem__) == first
    assert weights[first] > 1, "what the user wants first stays first"


def test_models_that_generate_text_start_with_fused_attention_and_few_bits() -> None:
    _, plan = proposed(decoder())
    points = [point["weights"] for chain in plan.chains() for point in chain.prior if "weights" in point]
    names = ("bits", "embedding_bits", "head_bits")
    bits = [tuple(point[name] for name in names) for point in points]
    assert bits == [(8, 0, 0), (4, 0, 0), (4, 8, 8), (8, 8, 0)]
    searched = [point["weights"] for chain in plan.chains() for point in chain.space.iterate() if "weights" in point]
    assert {tuple(point[name] for name in names) for point in searched} == {
        *((8, embedding_bits, 0) for embedding_bits in (0, 8)),
        *((4, embedding_bits, head_bits) for embedding_bits in (0, 4, 8) for head_bits in (0, 8)),
    }
    points = [point["calibrated"] for chain in plan.chains() for point in chain.prior if "calibrated" in point]
    assert [point["sensitive_share"] for point in points] == [0.25, 0.0]
    weights = {chain.name: chain.weight for chain in plan.chains() if chain.prior}
    assert max(weights, key=weights.__getitem__) == "names -> simplify -> fuse -> residuals"
    _, plan = proposed(model("MatMul", "Gather", "Softmax"))
    assert not any("calibrated" in chain.name for chain in plan.chains())
    assert not any("weights" in point for chain in plan.chains() for point in chain.prior)
