"""Templates adapted to a model and its target."""

from __future__ import annotations

from proposal_cases import CNN, inputs_of, model, proposed

from autoopt.dag.proposal.propose import adapted_templates
from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.spec.proposal_options import ProposalOptions


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
