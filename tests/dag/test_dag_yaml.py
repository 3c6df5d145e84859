"""A proposal as a dag.yaml."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposal_cases import CNN, TRANSFORMER, TREES, proposed
from ruamel.yaml import YAML

from autoopt.dag import Plan
from autoopt.dag.proposal.dag_yaml import flow, yaml_text
from autoopt.problem.earlier_runs import Example, known_point
from autoopt.spec.proposal_options import ProposalOptions

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.text()),
    # YAML reads keys of at most 1024 characters without a question mark, and an escape takes ten.
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(min_size=1, max_size=90), inner, max_size=4)
    ),
    max_leaves=8,
)


def parse(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


@given(json_values)
def test_a_value_in_flow_form_reads_back_as_itself(value: Any) -> None:
    assert parse(f"value: {flow(value)}")["value"] == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain-name_1.x/y", "plain-name_1.x/y"),
        ("no", '"no"'),
        ("1.5", '"1.5"'),
        ("a b", '"a b"'),
        (None, "~"),
        (True, "true"),
        ({"a": [1, "b"]}, "{a: [1, b]}"),
        ((1, 2), "[1, 2]"),
    ],
)
def test_quotes_appear_only_if_they_are_needed(value: Any, text: str) -> None:
    assert flow(value) == text


def text_of(inspection: Any, options: ProposalOptions | None = None, *examples: Example, **data: Any) -> str:
    proposal, plan = proposed(inspection, options, *examples, **data)
    return yaml_text(proposal, plan, "net.onnx", {"evaluation": "items.npz"})


@pytest.mark.parametrize("inspection", [CNN, TRANSFORMER, TREES], ids=["cnn", "transformer", "trees"])
def test_the_file_lists_only_what_is_left(inspection: Any) -> None:
    proposal, _ = proposed(inspection)
    document = parse(text_of(inspection))
    assert not set(document["passes"]) & set(proposal.reasons)
    assert {node for stage in document["stages"] for node in stage if node} == set(document["passes"])
    assert [None] not in document["stages"]
    assert document["model"] == "net.onnx"
    assert document["data"] == {"evaluation": "items.npz"}


def test_a_value_that_is_not_tried_is_a_comment_with_its_reason() -> None:
    text = text_of(CNN, ProposalOptions(level=2))
    assert "  #   without engine onnxsim: needs --set level=3\n" in text
    assert parse(text)["passes"]["simplify"]["params"] == {"engine": "onnxslim"}


def test_every_decision_is_a_comment_of_one_line() -> None:
    _, plan = proposed(CNN)
    comments = [line for line in text_of(CNN).splitlines() if line.startswith("# ")]
    assert comments[0].startswith("# Proposed by autoopt")
    for decision in plan.decisions:
        assert f"# {decision.what}: {decision.why}" in comments


def test_excluded_chains_and_learned_preferences_are_sections() -> None:
    example = Example("other", frozenset(("simplify", "static_quantization")), {"simplify": {"engine": "onnxsim"}}, 0.5)
    document = parse(text_of(CNN, None, example))
    assert {
        "nodes": ["dynamic", "graph"],
        "reason": "dynamic, graph: onnxruntime already does this fusion at load time",
    } in (document["forbid"])
    assert {
        "nodes": ["static", "session"],
        "values": {"session": {"graph_optimization_level": "basic"}},
        "reason": "the runtime fuses quantized operators only above this level",
    } in document["forbid"]
    point, *first = document["prefer"]
    assert ["names", "simplify", "fold", "dynamic"] in [row["chain"] for row in first]
    assert point["values"]["simplify"] == {"engine": "onnxsim"}
    assert (
        "simplify (engine=onnxsim), static_quantization gave 0.50 of the source's latency_p50 on other"
        in (point["reason"])
    )
    plain = parse(text_of(TREES, ProposalOptions(level=0)))
    assert not {"forbid", "prefer"} & set(plain)


def test_a_constraint_is_suggested_if_anything_lossy_is_left() -> None:
    hint = "# constraints: [...]"
    assert hint in text_of(CNN)
    assert hint not in text_of(CNN, ProposalOptions(level=1))
    assert hint not in text_of(TREES)


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
