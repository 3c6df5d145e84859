"""The best candidate of an earlier run on the same graph becomes a point of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from proposal_cases import CNN, proposed

from autoopt.dag import Plan
from autoopt.problem.earlier_runs import Example, known_point

STATIC = frozenset(("simplify", "static_quantization"))
GOOD = Example("resnet", STATIC, {}, 0.8)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan that is proposed for a CNN."""
    return proposed(CNN)[1]


def test_the_closest_chain_is_chosen_and_the_evidence_is_what_was_measured(plan: Plan) -> None:
    known = known_point(plan, GOOD)
    assert known.chain == ("names", "simplify", "static")
    measured = "simplify, static_quantization gave 0.80 of the source's latency_p50 on resnet (same graph)"
    assert known.text == f"names -> simplify -> static: {measured}"
    elsewhere = known_point(plan, replace(GOOD, elsewhere="another CPU"))
    assert elsewhere.evidence.endswith("(same graph), measured with another CPU")
    assert plan.with_learned([known]).digest == plan.digest


def test_no_chain_is_credited_for_a_pass_that_it_lacks_or_loses_more_by(plan: Plan) -> None:
    assert known_point(plan, replace(GOOD, passes=STATIC | {"my_pass"})) is None
    lossless = known_point(plan, replace(GOOD, passes=frozenset(("simplify",))))
    assert [plan.spec.passes[node].pass_name for node in lossless.chain] == ["name_fix", "simplify"]


def test_values_that_are_searched_are_taken_and_others_left_open(plan: Plan) -> None:
    values = {"static_quantization": {"per_channel": False, "calibrate_method": "Best"}, "simplify": {"engine": "none"}}
    known = known_point(plan, replace(GOOD, values=values))
    assert known.point["static"]["per_channel"] is False
    (chain,) = [chain for chain in plan.chains() if chain.id == known.chain_id]
    assert chain.space[chain.space.index(known.point)] == known.point


def test_only_the_same_search_is_expected_to_repeat(plan: Plan) -> None:
    known, repeated = known_point(plan, GOOD), known_point(plan, replace(GOOD, same_search=True))
    assert known is not None
    assert (known.expected, repeated.expected) == (None, 0.8)
