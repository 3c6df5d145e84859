"""Passes and values that a proposal rules out, with the reasons, and the points that it tries first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposal_cases import CNN, LABELLED, TRANSFORMER, TREES, inputs_of, model, proposed

from autoopt.dag import Facts, pass_infos
from autoopt.dag.proposal.inputs import conditions
from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.proposal_priors import ruled_out, value_cuts
from autoopt.dag.proposal.propose import propose
from autoopt.dag.proposal.templates import TABLES, TEMPLATES, provider_profile
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import TargetSpec

CPU = ProposalOptions().target()
TINY = model("MatMul", "Softmax", parameters=3000)
LOSSY = [node for node, template in TEMPLATES.items() if template.lossy]


def rule(node: str, inspection: Inspection, target: TargetSpec = CPU, **data: Any) -> tuple[str, str] | None:
    reason = ruled_out(node, inputs_of(inspection, **data), target, 3)
    return None if reason is None else (reason.rule, reason.text)


@pytest.mark.parametrize(
    ("node", "inspection", "text"),
    [
        ("fuse", CNN, "no attention, GELU or LayerNorm in this model"),
        ("pads", TRANSFORMER, "no convolution in this model to absorb the padding"),
        ("dynamic", model("Conv"), "the model has only convolutions, which get slower without calibration"),
        (
            "weights",
            replace(CNN, layer_parameters={"Conv": 9900, "Gemm": 100}),
            "99% of the layers' weights are in Conv, which it leaves in float",
        ),
        (
            "static",
            replace(model("GRU", "MatMul"), layer_parameters={"GRU": 9800, "MatMul": 200}),
            "98% of the layers' weights are in GRU, which it leaves in float",
        ),
        ("static", TREES, "lower precision gains nothing on trees"),
        ("half", model("Add"), "lower precision gains nothing on a model without matrix products and convolutions"),
        (
            "dynamic",
            replace(model("STFT"), op_counts={"STFT": 1, "MatMul": 1}),
            "the model's only product is the filter bank of a spectrum, which needs floats",
        ),
        ("session", TREES, "no session option matters to this model"),
        ("simplify", TREES, "no pass changes how decision trees are computed"),
        ("ir", TREES, "no pass changes how decision trees are computed"),
        ("opset", TREES, "no pass changes how decision trees are computed"),
        ("dynamic", TINY, "integers cost more than they save with 3000 weights; --precision int8 tries them"),
    ],
)
def test_the_operators_of_a_model_rule_nodes_out(node: str, inspection: Inspection, text: str) -> None:
    assert rule(node, inspection) == ("inspection", text)


@pytest.mark.parametrize(
    "inspection",
    [
        TRANSFORMER,
        model("Erf"),
        replace(model(), op_counts={"ReduceMean": 2, "Sqrt": 1, "MatMul": 1}),
        replace(model("Softmax"), op_counts={"Softmax": 1, "MatMul": 3, "Transpose": 1}),
    ],
)
def test_fusable_operators_are_recognized_whole_and_in_parts(inspection: Inspection) -> None:
    assert rule("fuse", inspection) is None


def test_a_single_mean_is_no_layer_normalization() -> None:
    assert rule("fuse", replace(model(), op_counts={"ReduceMean": 1, "Sqrt": 3, "MatMul": 21})) is not None


def test_two_products_beside_a_softmax_are_no_attention() -> None:
    assert rule("fuse", replace(model(), op_counts={"Softmax": 1, "MatMul": 2})) is not None


def test_what_a_pass_could_change_beside_decision_trees_is_simplified() -> None:
    assert rule("simplify", model("ai.onnx.ml::TreeEnsembleClassifier", "MatMul")) is None


@pytest.mark.parametrize(
    ("inspection", "data"),
    [
        (TINY, {"smaller_counts": True}),
        (replace(TINY, parameters=10_000), {}),
        (model("Conv", "Gemm", parameters=3000), {}),
        (model("If", "MatMul", body_counts={"MatMul": 2}), {}),
        (model("MatMul", "QuantizeLinear", parameters=3000), {}),
    ],
)
def test_integers_are_tried_unless_the_model_is_tiny(inspection: Inspection, data: dict[str, Any]) -> None:
    assert rule("static", inspection, **data) is None


@pytest.mark.parametrize(
    ("branching", "narrowing", "is_tried"),
    [
        (("If",), Narrowing({"sr": 16000}), True),
        (("If",), Narrowing(), False),
        (("If", "Loop"), Narrowing({"sr": 16000}), False),
    ],
)
def test_layers_in_branches_count_where_the_data_decide_between_them(
    branching: tuple[str, ...], narrowing: Narrowing, is_tried: bool
) -> None:
    inspection = model(*branching, "Conv", body_counts={"Conv": 2})
    assert (rule("selective", inspection, narrowing=narrowing) is None) == is_tried


def test_an_mlp_with_a_softmax_has_no_attention() -> None:
    inspection = replace(model("Softmax"), op_counts={"Softmax": 1, "MatMul": 3})
    assert rule("fuse", inspection) == ("inspection", "no attention, GELU or LayerNorm in this model")


@pytest.mark.parametrize("node", LOSSY)
@pytest.mark.parametrize("data", [{}, {"calibration": True}])
def test_nothing_lossy_is_tried_without_data_to_judge_it(node: str, data: dict[str, Any]) -> None:
    nothing = dict.fromkeys(LABELLED, False)
    text = "needs data. Add --data FILE, or --set fidelity=true to compare outputs on generated inputs"
    assert rule(node, TRANSFORMER, **{**nothing, **data}) == ("no-data", text)
    assert rule(node, TRANSFORMER, **{**nothing, **data, "fidelity": True}) is None
    assert rule(node, TRANSFORMER, **{**nothing, **data, "evaluation": True}) is None


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.sampled_from(LOSSY))
def test_a_target_s_memory_rules_out_what_cannot_fit(size: int, memory: int, node: str) -> None:
    target = ProposalOptions(memory=memory).target()
    inspection = replace(TRANSFORMER, bytes=size)
    found = rule(node, inspection, target)
    assert (found is not None) == (TEMPLATES[node].size * size > memory)
    assert found is None or found[0] == "memory"
    assert ("floats_fit" in conditions(inputs_of(inspection), target, 3)) == (size <= memory)


def test_only_some_providers_need_fixed_shapes() -> None:
    moving = inputs_of(replace(CNN, dynamic_dims=("batch",)))
    targets = {name: ProposalOptions(execution_provider=name).target() for name in TABLES.providers if name != "other"}
    needing = {name for name, target in targets.items() if "open_shapes" in conditions(moving, target, 3)}
    assert needing == {"QNNExecutionProvider"}
    assert "open_shapes" not in conditions(inputs_of(CNN), ProposalOptions(execution_provider="qnn").target(), 3)


def cuts(
    node: str, name: str, inspection: Inspection, level: int = 3, provider: str = "cpu", **templates: Any
) -> dict[str, str]:
    """Value -> reason of the cuts of one parameter."""
    target = ProposalOptions(execution_provider=provider).target()
    fixed = provider_profile(target.execution_provider).fixed
    nodes = {node: templates.get("template", TEMPLATES[node])}
    found = value_cuts(nodes, fixed, inputs_of(inspection), target, level)
    return {str(p.values[node][name]): p.reason for p in found if name in p.values[node]}


def test_a_level_leaves_values_to_higher_levels() -> None:
    assert cuts("simplify", "engine", CNN, level=1) == {"onnxsim": "needs --set level=3"}
    assert cuts("simplify", "engine", CNN, level=3) == {}


@pytest.mark.parametrize(
    ("node", "name", "inspection", "expected"),
    [
        ("dynamic", "op_types", CNN, {"[]": "the model has convolutions, which get slower without calibration"}),
        (
            "dynamic",
            "op_types",
            model("MatMul"),
            {"['MatMul', 'Attention', 'LSTM']": "same as all operators: the model has no others to quantize"},
        ),
        ("dynamic", "op_types", model("MatMul", "Gather"), {}),
        (
            "static",
            "op_types",
            model("Conv", "Relu"),
            {"['Conv', 'Gemm', 'MatMul']": "same as all operators: the model has hardly any others"},
        ),
        ("static", "op_types", model("Conv", "Softmax"), {}),
        ("static", "calibrate_method", CNN, {}),
    ],
)
def test_values_that_make_no_difference_or_harm_are_cut(
    node: str, name: str, inspection: Inspection, expected: dict[str, str]
) -> None:
    assert cuts(node, name, inspection) == expected


def test_cuda_graphs_need_fixed_shapes() -> None:
    moving = replace(CNN, dynamic_dims=("batch", "height", "width", "depth"))
    found = cuts("session", "enable_cuda_graph", moving, provider="cuda", template=TEMPLATES["cuda_session"])
    assert found == {"True": "needs fixed shapes; batch, height, width is dynamic"}


def test_cpu_layouts_are_tried_on_the_cpu_only() -> None:
    assert cuts("graph", "level", CNN) == {}
    assert cuts("graph", "level", CNN, provider="cuda") == {
        "all": "includes CPU layouts, which this provider cannot run"
    }


def test_session_levels_that_cannot_matter_are_not_tried() -> None:
    layout = "same as the default level: only convolutions and pooling have another layout"
    assert cuts("session", "graph_optimization_level", CNN) == {}
    assert cuts("session", "graph_optimization_level", TRANSFORMER) == {"extended": layout}
    assert set(cuts("session", "graph_optimization_level", TREES)) == {"extended", "basic"}


def test_a_fusion_is_stored_only_for_the_source_s_own_precision() -> None:
    _, plan = proposed(TRANSFORMER)
    names = [chain.passes for chain in plan.chains()]
    assert any("graph" in passes for passes in names)
    lossy = {node for node, template in TEMPLATES.items() if template.lossy}
    assert not any("graph" in passes and lossy & set(passes) for passes in names)


def test_session_options_that_no_model_gains_by_are_not_tried() -> None:
    _, plan = proposed(CNN, ProposalOptions(threads="1,all"))
    for chain in plan.chains():
        levels = {point["session"]["graph_optimization_level"] for point in chain.space.iterate() if "session" in point}
        quantized = {"static", "selective", "dynamic"} & {node.id for node in chain.nodes}
        assert not (quantized and "basic" in levels)
        assert "graph" not in [node.id for node in chain.nodes] or levels <= {"all"}
        defaults = {"intra_op_num_threads": None, "graph_optimization_level": "all"}
        assert not any(point.get("session") == defaults for point in chain.space.iterate())


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
