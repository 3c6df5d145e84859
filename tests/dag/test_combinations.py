"""Combinations that are not tried, whatever the model."""

from __future__ import annotations

from dataclasses import replace

from proposal_cases import CNN, TRANSFORMER, model, proposed

from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.spec.proposal_options import ProposalOptions


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


def test_layers_stay_in_float_by_their_number_or_by_the_noise_of_the_others() -> None:
    _, plan = proposed(replace(CNN, op_counts={"Conv": 20, "Gemm": 2}))
    points = [point["selective"] for chain in plan.chains() for point in chain.space.iterate() if "selective" in point]
    assert {point["exclude_worst"] for point in points if point["least_sqnr_db"]} == {1}
    assert len({point["exclude_worst"] for point in points if not point["least_sqnr_db"]}) > 1


def test_a_quantized_model_is_quantized_again_only_in_float() -> None:
    _, plan = proposed(model("DequantizeLinear", "QuantizeLinear", "MatMul", "Conv"))
    quantized = [chain.passes for chain in plan.chains() if {"static", "dynamic", "selective"} & set(chain.passes)]
    assert quantized
    assert all("dequantize" in passes for passes in quantized)
