"""Preferences learned from finished runs on similar models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposal_cases import CNN, TRANSFORMER, TREES, model

from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.dag.proposal.warm_start import MAX_EXAMPLES, MAX_WEIGHT, Example, learned_priors, similarity
from autoopt.model.inspection import Inspection

STAGES = [["names"], ["simplify", "constants"], ["fold", None], ["dynamic", "static", None]]
NODES = {node: TEMPLATES[node] for stage in STAGES for node in stage if node is not None}
VALUES = {node: {name: [v for v, _ in values] for name, values in t.search.items()} for node, t in NODES.items()}
GOOD = Example("resnet", 0.9, frozenset(("simplify", "static_quantization")), {}, 0.5)

counts = st.dictionaries(st.sampled_from(("Conv", "MatMul", "Add", "Relu", "Gemm")), st.integers(1, 50), max_size=4)
inspections = st.builds(
    lambda ops, size: replace(model(), op_counts=ops, parameters=size), counts, st.integers(0, 10**9)
)


@given(inspections, inspections)
def test_similarity_is_symmetric_and_between_0_and_1(a: Inspection, b: Inspection) -> None:
    assert similarity(a, b) == pytest.approx(similarity(b, a))
    assert 0 <= similarity(a, b) <= 1 + 1e-9


@given(inspections)
def test_a_model_is_most_similar_to_itself(a: Inspection) -> None:
    assert similarity(a, a) == pytest.approx(1.0 if a.op_counts else 0.0)


@given(inspections, st.integers(2, 9))
def test_repeating_every_layer_changes_little(a: Inspection, times: int) -> None:
    repeated = replace(a, op_counts={op: times * count for op, count in a.op_counts.items()})
    assert similarity(a, repeated) == pytest.approx(similarity(a, a))


def test_other_operators_and_sizes_make_models_less_similar() -> None:
    assert similarity(CNN, TREES) == 0
    assert similarity(CNN, TRANSFORMER) < 0.5
    assert similarity(CNN, replace(CNN, parameters=10 * CNN.parameters)) == pytest.approx(10**-0.1, rel=1e-3)


def test_the_closest_chain_is_preferred() -> None:
    (prior,) = learned_priors([GOOD], STAGES, NODES, VALUES)
    assert (prior.kind, prior.origin) == ("prefer", "learned")
    assert prior.scope.chain == ("names", "simplify", "static")
    assert prior.weight == pytest.approx(1 + 0.9 * (1 / 0.5 - 1))
    assert prior.reason == "names -> simplify -> static: best on resnet (similarity 0.90), ratio 0.50"


def test_values_that_are_tried_are_preferred_and_others_are_dropped() -> None:
    values = {"static_quantization": {"per_channel": True, "calibrate_method": "Best"}, "simplify": {"engine": "none"}}
    chain, preferred = learned_priors([replace(GOOD, values=values)], STAGES, NODES, VALUES)
    assert preferred.values == {"static": {"per_channel": True}}
    assert preferred.scope == chain.scope


@pytest.mark.parametrize(
    "useless", [replace(GOOD, similarity=0.69), replace(GOOD, ratio=1.0), replace(GOOD, ratio=1.4)]
)
def test_distant_models_and_runs_without_gain_teach_nothing(useless: Example) -> None:
    assert learned_priors([useless], STAGES, NODES, VALUES) == []


def test_a_weight_has_an_upper_limit() -> None:
    (prior,) = learned_priors([replace(GOOD, ratio=1e-9)], STAGES, NODES, VALUES)
    assert prior.weight == MAX_WEIGHT


def test_at_most_three_chains_are_preferred_the_most_similar_first() -> None:
    passes = [("simplify",), ("constant_folding",), ("simplify", "batchnorm_folding"), ("dynamic_quantization",)]
    examples = [Example(f"m{i}", 0.95 - i / 100, frozenset(p), {}, 0.5) for i, p in enumerate(passes)]
    expected = [prior.scope for prior in learned_priors(examples, STAGES, NODES, VALUES)]
    assert len(expected) == MAX_EXAMPLES
    for order in (examples[::-1], examples[2:] + examples[:2]):
        assert [prior.scope for prior in learned_priors(order, STAGES, NODES, VALUES)] == expected


def test_two_examples_for_one_chain_count_once() -> None:
    priors = learned_priors([GOOD, replace(GOOD, model="other", similarity=0.8)], STAGES, NODES, VALUES)
    assert len(priors) == 1
    assert "resnet" in priors[0].reason


def test_a_stage_without_a_matching_pass_is_skipped_if_possible() -> None:
    (prior,) = learned_priors([replace(GOOD, passes=frozenset(("other",)))], STAGES, NODES, VALUES)
    assert prior.scope.chain == ("names", "simplify")
    assert learned_priors([GOOD], [[None], []], NODES, VALUES) == []
