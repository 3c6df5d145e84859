"""Combinations that are not tried, whatever the model."""

from __future__ import annotations

from proposal_cases import CNN, proposed

from autoopt.dag.proposal.combinations import excluded_chains, excluded_counts, twice_quantized
from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.spec.proposal_options import ProposalOptions


def test_a_fusion_is_stored_only_for_the_source_s_own_precision() -> None:
    nodes = {node: TEMPLATES[node] for node in ("simplify", "half", "static", "graph")}
    priors = list(excluded_chains(nodes))
    assert [prior.scope.nodes for prior in priors] == [{"half", "graph"}, {"static", "graph"}]
    assert priors[0].reason == "half, graph: onnxruntime already does this fusion at load time"
    del nodes["graph"]
    assert list(excluded_chains(nodes)) == []


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
    assert list(excluded_counts({"static": TEMPLATES["static"]})) == []
    values = [prior.values["selective"] for prior in excluded_counts({"selective": TEMPLATES["selective"]})]
    counts = [count for count, _ in TEMPLATES["selective"].search["exclude_worst"]]
    assert values
    assert all(value["least_sqnr_db"] for value in values)
    assert {value["exclude_worst"] for value in values} == set(counts) - {min(counts)}


def test_a_quantized_model_is_quantized_again_only_in_float() -> None:
    nodes = {node: TEMPLATES[node] for node in ("dequantize", "simplify", "static")}
    [prior] = twice_quantized(nodes)
    assert (prior.scope.nodes, prior.scope.without) == ({"static"}, {"dequantize"})
    del nodes["dequantize"]
    assert list(twice_quantized(nodes)) == []
