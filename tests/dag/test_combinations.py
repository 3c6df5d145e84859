"""Combinations that are not tried, whatever the model."""

from __future__ import annotations

from proposal_cases import CNN, TRANSFORMER, proposed

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
