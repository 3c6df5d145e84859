"""Preferences learned from finished runs on similar models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposal_cases import CNN, TRANSFORMER, TREES, model, proposed

from autoopt.dag import Plan
from autoopt.dag.warm_start import MAX_LEARNED, MAX_WEIGHT, Example, same_graph, similarity, warm_started
from autoopt.model.inspection import Inspection

STATIC = frozenset(("simplify", "static_quantization"))
GOOD = Example("resnet", 0.9, STATIC, {}, 0.8)

counts = st.dictionaries(st.sampled_from(("Conv", "MatMul", "Add", "Relu", "Gemm")), st.integers(1, 50), max_size=4)
inspections = st.builds(
    lambda ops, size: replace(model(), op_counts=ops, parameters=size), counts, st.integers(0, 10**9)
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan that is proposed for a CNN."""
    return proposed(CNN)[1]


def learn(plan: Plan, *examples: Example) -> Plan:
    return warm_started(plan, examples)


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


def test_a_retrained_model_has_the_same_graph_and_a_wider_one_has_not() -> None:
    assert same_graph(CNN, replace(CNN, bytes=CNN.bytes + 1))
    assert not same_graph(CNN, replace(CNN, parameters=CNN.parameters + 1))
    assert not same_graph(CNN, TRANSFORMER)


def test_the_closest_chain_is_preferred_and_the_evidence_is_what_was_measured(plan: Plan) -> None:
    (preference,) = learn(plan, GOOD).learned
    assert preference.chain == ("names", "simplify", "static")
    assert preference.weight == pytest.approx(1 + 0.9 * (1 / 0.8 - 1))
    measured = "simplify, static_quantization gave 0.80 of the source's latency_p50 on resnet (similarity 0.90)"
    assert preference.text == f"names -> simplify -> static: {measured}"
    (chain,) = [chain for chain in learn(plan, GOOD).chains() if chain.weight > 1]
    assert chain.passes == preference.chain
    assert plan.digest == learn(plan, GOOD).digest


def test_no_chain_is_credited_for_a_pass_that_it_lacks_or_loses_more_by(plan: Plan) -> None:
    assert learn(plan, replace(GOOD, passes=STATIC | {"my_pass"})).learned == ()
    passes = proposed(CNN)[1].spec.passes
    lossless = learn(plan, replace(GOOD, passes=frozenset(("simplify",)))).learned
    assert [passes[node].pass_name for node in lossless[0].chain] == ["name_fix", "simplify"]


def test_values_that_are_searched_come_first_and_others_are_left_open(plan: Plan) -> None:
    values = {"static_quantization": {"per_channel": False, "calibrate_method": "Best"}, "simplify": {"engine": "none"}}
    taught = learn(plan, replace(GOOD, values=values))
    assert taught.learned[0].points == ({"static": {"per_channel": False}},)
    (chain,) = [chain for chain in taught.chains() if chain.weight > 1]
    assert chain.prior[0]["static"]["per_channel"] is False


def test_examples_of_one_chain_are_told_together_with_their_range(plan: Plan) -> None:
    other = replace(GOOD, model="vgg", similarity=0.8, ratio=0.6, elsewhere="onnxruntime 1.20.0")
    (preference,) = learn(plan, other, GOOD).learned
    assert "gave 0.60 to 0.80" in preference.evidence
    assert "2 similar models (resnet, vgg), measured with onnxruntime 1.20.0" in preference.evidence


def test_settings_that_differ_are_told_apart(plan: Plan) -> None:
    whole = replace(GOOD, values={"static_quantization": {"per_channel": True}})
    tensor = replace(GOOD, model="vgg", ratio=0.6, values={"static_quantization": {"per_channel": False}})
    (preference,) = learn(plan, whole, tensor).learned
    assert "per_channel=True) gave 0.80" in preference.evidence
    assert "per_channel=False) gave 0.60" in preference.evidence
    assert len(preference.points) == 2


@pytest.mark.parametrize("useless", [replace(GOOD, similarity=0.69), replace(GOOD, ratio=1.0)])
def test_distant_models_and_runs_without_gain_teach_nothing(useless: Example, plan: Plan) -> None:
    assert learn(plan, useless).learned == ()


def test_an_example_from_elsewhere_weighs_less_and_every_weight_has_a_limit(plan: Plan) -> None:
    (near,), (far,) = (learn(plan, replace(GOOD, elsewhere=text)).learned for text in ("", "another CPU"))
    assert far.weight == pytest.approx(1 + (near.weight - 1) / 2, abs=1e-3)
    assert learn(plan, replace(GOOD, ratio=1e-9)).learned[0].weight == MAX_WEIGHT


def test_only_the_same_search_on_the_same_graph_is_expected_to_repeat(plan: Plan) -> None:
    assert learn(plan, GOOD).learned[0].expected is None
    repeated = learn(plan, GOOD, replace(GOOD, similarity=0.1, same_search=True, ratio=0.5)).learned
    assert repeated[0].expected == 0.5
    assert "(resnet)" not in repeated[0].evidence


def test_the_known_best_of_the_same_search_comes_before_all_other_points(plan: Plan) -> None:
    before = next(chain for chain in plan.chains() if chain.prior and "static" in chain.passes)
    passes = frozenset(node.pass_name for node in before.nodes)
    known = replace(GOOD, passes=passes, values={"static_quantization": {"per_channel": False}}, same_search=True)
    (after,) = [chain for chain in learn(plan, known).chains() if chain.passes == before.passes]
    assert after.prior[0]["static"]["per_channel"] is False
    assert after.prior[1:] == before.prior


def test_at_most_three_chains_are_preferred_in_any_order_of_the_examples(plan: Plan) -> None:
    passes = [("simplify",), ("constant_folding",), ("simplify", "batchnorm_folding"), ("dynamic_quantization",)]
    examples = [Example(f"m{i}", 0.95 - i / 100, frozenset(p), {}, 0.5) for i, p in enumerate(passes)]
    expected = [preference.chain for preference in learn(plan, *examples).learned]
    assert len(expected) == MAX_LEARNED
    for order in (examples[::-1], examples[2:] + examples[:2]):
        assert [preference.chain for preference in learn(plan, *order).learned] == expected


def test_all_preferences_together_have_at_most_three_first_points(plan: Plan) -> None:
    static = [
        replace(GOOD, model=f"m{i}", ratio=0.5 + i / 100, values={"static_quantization": values})
        for i, values in enumerate(
            (
                {"per_channel": True},
                {"per_channel": False},
                {"calibrate_method": "MinMax"},
                {"calibrate_method": "Entropy"},
            )
        )
    ]
    simplified = replace(GOOD, model="x", ratio=0.9, passes=frozenset(("simplify",)))
    alone, together = learn(plan, *static).learned, learn(plan, *static, simplified).learned
    assert [len(preference.points) for preference in alone] == [MAX_LEARNED]
    assert [len(preference.points) for preference in together] == [MAX_LEARNED - 1, 0]
