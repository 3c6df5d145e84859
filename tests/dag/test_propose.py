"""Proposed pass graphs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import yaml
from proposal_cases import CNN, TRANSFORMER, TREES, inputs_of, model, proposed

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.dag.proposal.dag_yaml import yaml_text
from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.propose import adapted_templates
from autoopt.dag.proposal.templates import TABLES, TEMPLATES
from autoopt.model.inspection import Inspection
from autoopt.problem.earlier_runs import Example
from autoopt.registry import registry
from autoopt.spec import load_dag
from autoopt.spec.proposal_options import PRECISIONS, ProposalOptions

ORDER = (
    *("name_fix", "ir_upgrade", "opset_conversion", "inline_functions", "specialize_inputs", "fix_input_shape"),
    "remove_unused",
    *("common_subexpression_elimination", "simplify", "constant_folding", "batchnorm_folding", "pad_folding"),
    *("transformer_fusion", "merge_reshapes", "float16", "mixed_float16", "provider_precision"),
    *("dynamic_quantization", "static_quantization"),
    *(
        "selective_quantization",
        "weight_only_quantization",
        "split_skip_normalization",
        "ort_graph_optimization",
        "session_tuning",
    ),
)


def passes(plan: Plan) -> set[str]:
    """Names of the passes on kept chains."""
    return {n.pass_name for chain in plan.chains() for n in chain.nodes if not n.inserted}


def why(plan: Plan) -> str:
    return "\n".join(f"{d.what}: {d.why}" for d in plan.decisions)


def test_loops_become_layers_or_lose_their_invariants_or_stay() -> None:
    _, plan = proposed(model("Loop", "MatMul"))
    chains = [[n.pass_name for n in chain.nodes if not n.inserted] for chain in plan.chains()]
    for name in ("loop_to_rnn", "loop_invariant_code_motion"):
        assert 3 * sum(name in names for names in chains) == len(chains)
        assert name not in passes(proposed(CNN)[1])


def test_shapes_are_joined_only_where_two_operators_change_them_in_a_row() -> None:
    views = model("Conv", "Gemm", "Reshape", "Squeeze", view_pairs=1)
    _, plan = proposed(views)
    assert "merge_reshapes" in passes(plan)
    _, plan = proposed(replace(views, view_pairs=0))
    assert "merge_reshapes" not in passes(plan)
    assert "merge reshapes" in why(plan)


def test_chains_with_and_without_rows_are_tried_where_convolutions_are_narrow() -> None:
    _, plan = proposed(replace(CNN, narrow_convolutions=2))
    chains = [[n.pass_name for n in chain.nodes if not n.inserted] for chain in plan.chains()]
    assert 2 * sum("conv_to_rows" in names for names in chains) == len(chains)
    assert "conv_to_rows" not in passes(proposed(CNN)[1])


@pytest.mark.parametrize("provider", sorted(TABLES.providers.keys() - {"other"}))
@pytest.mark.parametrize("inspection", [CNN, TRANSFORMER, TREES], ids=["cnn", "transformer", "trees"])
def test_every_row_of_the_table_gives_chains_in_the_fixed_order(provider: str, inspection: Inspection) -> None:
    for precision, level in itertools.product((None, *PRECISIONS), range(4)):
        _, plan = proposed(inspection, ProposalOptions(execution_provider=provider, precision=precision, level=level))
        assert plan.chain_count > 0, (precision, level)
        for chain in plan.chains():
            names = [n.pass_name for n in chain.nodes if not n.inserted]
            places = [ORDER.index(name) for name in names]
            assert places == sorted(places), names
            infos = [registry().info(name) for name in names]
            assert sum(i.tolerance == "lossy" for i in infos) <= 1, "precision or quantization, not both"
            assert level > 1 or not any(i.tolerance == "lossy" for i in infos)
            assert level > 2 or not any(i.needs_data for i in infos)


def test_higher_levels_only_add_passes_and_points() -> None:
    counts = []
    for level in range(4):
        _, plan = proposed(CNN, ProposalOptions(level=level))
        counts.append(plan.point_count)
        assert plan.chain_count == len(list(plan.chains()))
    assert counts == sorted(set(counts))


def test_the_plan_gives_the_level_from_which_a_value_is_tried() -> None:
    _, plan = proposed(CNN, ProposalOptions(level=2))
    data = plan.to_json()
    assert data["points_before"] > data["point_count"] == sum(c["points"] for c in data["chains"])
    cut = next(c for c in data["cut"] if (c["node"], c["param"], c["value"]) == ("simplify", "engine", "onnxsim"))
    assert cut["reason"] == "needs --set level=3"
    assert cut["chain"] in {c["id"] for c in data["chains"]}
    assert all(c["reason"] for c in data["cut"])
    assert all(p["reason"] for p in data["pruned"])


@pytest.mark.parametrize("op", ["MatMulInteger", "QLinearMatMul", "com.microsoft::MatMulNBits"])
def test_models_that_come_quantized_are_quantized_anew_only_after_dequantizing(op: str) -> None:
    proposal, plan = proposed(model(op, "Add"))
    chains = {chain.passes for chain in plan.chains()}
    lossy = {"dynamic", "static", "selective", "weights"}
    assert lossy <= {node for chain in chains for node in chain}
    for chain in chains:
        assert "dequantize" in chain or lossy.isdisjoint(chain), chain
    assert any("dequantize" not in chain for chain in chains)
    assert "the model comes quantized" in why(plan)
    first = next(chain for chain in plan.chains() if chain.prior)
    assert "dequantize" in first.passes
    written = load_dag(yaml.safe_load(yaml_text(proposal, plan, "model.onnx", {})))
    facts = replace(proposal.facts, proposed=False, ruled_out={})
    again = compile_plan(written, pass_infos(facts.accelerator), facts)
    assert {chain.passes for chain in again.chains()} == chains


def test_models_in_float64_are_quantized_only_after_conversion_and_bfloat16_is_converted() -> None:
    _, plan = proposed(model("MatMul", "Add", weight_dtypes={"float64": 9000}))
    chains = {chain.passes for chain in plan.chains()}
    assert all("float64" in chain for chain in chains if "dynamic" in chain or "static" in chain)
    assert "the model is in float64" in why(plan)
    assert "float32" in passes(proposed(model("MatMul", "Add", weight_dtypes={"bfloat16": 9000}))[1])


@pytest.mark.parametrize(("stored", "weight_type"), [("int8", "QInt8"), ("uint8", "QUInt8")])
def test_a_quantized_model_begins_with_the_weights_that_it_has(stored: str, weight_type: str) -> None:
    _, plan = proposed(model("MatMulInteger", "Gather", weight_dtypes={stored: 9000, "float32": 10}))
    points = [point for chain in plan.chains() if "dynamic" in chain.passes for point in chain.prior]
    assert points[0]["dynamic"]["per_channel"] is False
    assert points[0]["dynamic"]["weight_type"] == weight_type


def test_layers_that_the_runtime_fused_are_split_before_anything_else_is_tried() -> None:
    _, plan = proposed(model("com.microsoft::FusedConv", "MaxPool"))
    chains = [chain.passes for chain in plan.chains()]
    assert all("split" in chain for chain in chains)
    assert any("static" in chain for chain in chains)


def test_a_quantized_model_stays_as_it_is_if_nothing_lossy_can_be_judged_or_its_floats_are_large() -> None:
    quantized = model("com.microsoft::MatMulNBits", weight_dtypes={"uint8": 2**29})
    for _, plan in (
        proposed(quantized),
        proposed(model("MatMulInteger"), evaluation=False, labels=False),
        proposed(model("MatMulInteger"), ProposalOptions(level=1)),
    ):
        assert not {"dequantize", "dynamic", "weights"} & {node for chain in plan.chains() for node in chain.passes}


def test_old_formats_are_upgraded_when_needed() -> None:
    old = replace(CNN, ir_version=3, opsets={"": 8})
    found = passes(proposed(old)[1])
    assert {"ir_upgrade", "opset_conversion"} <= found
    assert not {"ir_upgrade", "opset_conversion"} & passes(proposed(CNN)[1])


def test_nothing_lossy_is_tried_without_data_unless_fidelity_is_allowed() -> None:
    nothing = {"evaluation": False, "labels": False, "calibration": False}
    _, plan = proposed(CNN, **nothing)
    assert not {"static_quantization", "dynamic_quantization", "weight_only_quantization"} & passes(plan)
    assert plan.pruned_by_rule["no-data"] > 0
    _, plan = proposed(CNN, ProposalOptions(fidelity=True), **nothing, fidelity=True)
    assert "dynamic_quantization" in passes(plan)
    assert "static_quantization" not in passes(plan), "nothing to calibrate with"
    _, plan = proposed(CNN, **{**nothing, "evaluation": True, "calibration": True})
    assert "static_quantization" in passes(plan), "data without labels judges by closeness"


def test_only_models_that_fit_into_the_target_s_memory_are_tried() -> None:
    large = replace(CNN, bytes=1_000_000)
    _, plan = proposed(large, ProposalOptions(memory=300_000))
    lossy = {"static_quantization", "selective_quantization", "dynamic_quantization", "weight_only_quantization"}
    assert all({n.pass_name for n in chain.nodes} & lossy for chain in plan.chains())
    assert "its 1000000 bytes exceed the target's memory of 300000" in why(plan)
    _, plan = proposed(large, ProposalOptions(memory=150_000))
    assert passes(plan) & lossy == {"weight_only_quantization"}
    assert plan.pruned_by_rule["memory"] > 0


@pytest.mark.parametrize(
    ("provider", "precision", "expected"),
    [
        ("cpu", "fp16", {"float16"}),
        ("cpu", "int8", {"dynamic_quantization", "static_quantization", "selective_quantization"}),
        ("cpu", "int4", {"weight_only_quantization"}),
        ("cuda", "fp16", {"float16"}),
        ("cuda", "mixed", {"mixed_float16"}),
        ("tensorrt", "int8", {"static_quantization"}),
        ("dml", "fp16", {"float16"}),
        ("openvino", "int8", {"static_quantization"}),
        ("qnn", "int8", {"static_quantization"}),
        ("qnn", "int4", {"static_quantization"}),
    ],
)
def test_a_requested_precision_is_on_every_chain(provider: str, precision: str, expected: set[str]) -> None:
    _, plan = proposed(TRANSFORMER, ProposalOptions(execution_provider=provider, precision=precision))
    found = [{n.pass_name for n in c.nodes} & expected for c in plan.chains()]
    assert all(found)
    assert set().union(*found) == expected


def test_the_decisions_give_the_reason_against_a_precision() -> None:
    _, plan = proposed(TREES, ProposalOptions(precision="int8"))
    assert plan.chain_count > 0
    assert "int8 not tried: lower precision gains nothing on trees" in why(plan)
    assert "int4 not tried: the provider compresses weights itself" in why(
        proposed(TRANSFORMER, ProposalOptions(execution_provider="openvino", precision="int4"))[1]
    )


def test_fixed_shapes_where_the_provider_needs_them() -> None:
    moving = replace(TRANSFORMER, dynamic_dims=("batch",))
    assert "fix_input_shape" in passes(proposed(moving, ProposalOptions(execution_provider="qnn"))[1])
    assert "fix_input_shape" not in passes(proposed(moving)[1])
    graphs = [
        {p["session"]["enable_cuda_graph"] for c in plan.chains() for p in c.space.iterate() if "session" in p}
        for plan in (proposed(m, ProposalOptions(execution_provider="cuda"))[1] for m in (moving, TRANSFORMER))
    ]
    assert graphs == [{False}, {False, True}]


@pytest.mark.parametrize("inspection", [CNN, TRANSFORMER, TREES], ids=["cnn", "transformer", "trees"])
@pytest.mark.parametrize("level", range(4))
def test_the_file_gives_the_same_chains_and_points(inspection: Inspection, level: int, tmp_path: Any) -> None:
    for provider in ("cpu", "cuda", "qnn"):
        options = ProposalOptions(execution_provider=provider, level=level)
        taught = Example("other", frozenset(("simplify", "static_quantization")), {}, 0.5)
        found, plan = proposed(inspection, options, taught)
        file = tmp_path / "dag.yaml"
        file.write_text(yaml_text(found, plan, "model.onnx", {"evaluation": "a b.npz"}))
        spec = load_dag(file)
        accelerator = spec.all_targets[0].accelerator()
        again = compile_plan(spec, pass_infos(accelerator), Facts(accelerator, inspection, has_calibration=True))
        assert again.point_count == plan.point_count
        assert [c.passes for c in again.chains()] == [c.passes for c in plan.chains()]
        assert [[*c.space.iterate()] for c in again.chains()] != []
        assert (spec.model, spec.data.evaluation) == ("model.onnx", "a b.npz")
        assert [c.weight for c in again.chains()] == [c.weight for c in plan.chains()]


def test_threads_are_searched_in_the_session_and_written_into_the_target() -> None:
    proposal, plan = proposed(CNN, ProposalOptions(threads="1,2,all"))
    params = proposal.spec.passes["session"].params
    assert isinstance(params, dict)
    assert params["intra_op_num_threads"] == {"search": [1, 2, None]}
    assert params["graph_optimization_level"] == {"search": ["all", "extended", "basic"]}
    assert "trying 1, 2 or the default number of threads" in why(plan)
    text = yaml_text(proposal, plan, "model.onnx", {})
    assert "threads: [1, 2, all]}" in text
    assert "intra_op_num_threads: {search: [1, 2, ~]}" in text


@pytest.mark.parametrize(("threads", "written"), [("1", ""), ("4", ", threads: 4"), ("all", ", threads: all")])
def test_fixed_threads_are_not_searched(threads: str, written: str) -> None:
    proposal, plan = proposed(CNN, ProposalOptions(threads=threads))
    params = proposal.spec.passes["session"].params
    assert "intra_op_num_threads" not in params
    line = f"target: {{device: cpu, execution_provider: CPUExecutionProvider{written}}}\n"
    assert line in yaml_text(proposal, plan, "model.onnx", {})


def test_inputs_that_never_change_are_specialized_and_the_contract_is_stated() -> None:
    narrowing = Narrowing({"sr": 16000}, {"x": (None, 4)})
    proposal, plan = proposed(CNN, narrowing=narrowing)
    assert "sr is always 16000, x has shape [?, 4]; --set keep_signature=true leaves this out" in why(plan)
    with_pass = [any(node.id == "specialize" for node in chain.nodes) for chain in plan.chains()]
    assert any(with_pass)
    assert not all(with_pass)
    text = yaml_text(proposal, plan, "m.onnx", {})
    params = load_dag(yaml.safe_load(text)).passes["specialize"].params
    assert params == {"values": {"sr": 16000}, "shapes": {"x": [None, 4]}}
    assert "specialize" not in why(proposed(CNN)[1])


def test_a_few_sensitive_layers_are_kept_in_float_where_others_are_left() -> None:
    def kept(inspection: Inspection) -> set[Any]:
        points = (point for chain in proposed(inspection)[1].chains() for point in chain.space.iterate())
        return {point["selective"]["exclude_worst"] for point in points if "selective" in point}

    assert kept(model("Conv", "Gemm", "Relu")) == {1, 2, 3}, "4 layers"
    assert kept(replace(CNN, op_counts={"Conv": 9, "Relu": 9})) == {1, 2, 3, 4, 8}
    assert kept(replace(CNN, op_counts={"Conv": 1, "Relu": 1})) == set()


def test_layers_in_float_follow_from_their_number_or_from_the_noise() -> None:
    _, plan = proposed(replace(CNN, op_counts={"Conv": 9, "Relu": 9}))
    points = [point["selective"] for chain in plan.chains() for point in chain.space.iterate() if "selective" in point]
    pairs = {(point["exclude_worst"], point["least_sqnr_db"]) for point in points}
    assert pairs == {(1, 0), (2, 0), (3, 0), (4, 0), (8, 0), (1, 25), (1, 32)}


def test_recurrent_layers_are_tried_at_run_time_beside_static_convolutions() -> None:
    recurrent = model("Conv", "LSTM", "MatMul")
    points = [point for chain in proposed(recurrent)[1].chains() for point in chain.space.iterate()]
    tried = [point["static"]["dynamic_ops"] for point in points if "static" in point]
    assert ["LSTM"] in tried
    cuda = adapted_templates(TEMPLATES, inputs_of(recurrent), ProposalOptions(execution_provider="cuda").target())
    assert "dynamic_ops" not in cuda["static"].search
    assert (
        "dynamic_ops" not in adapted_templates(TEMPLATES, inputs_of(CNN), ProposalOptions().target())["static"].search
    )


def test_functions_are_inlined_before_all_passes_that_look_for_weights() -> None:
    for chain in proposed(model("MatMul", "Add", functions=2))[1].chains():
        assert "inline" in [node.id for node in chain.nodes]
    assert all(node.id != "inline" for chain in proposed(CNN)[1].chains() for node in chain.nodes)
