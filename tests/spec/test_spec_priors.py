"""The user's prior knowledge."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoopt.spec.priors import PreferSpec, PriorSpec
from autoopt.spec.validation import input_error


@pytest.mark.parametrize("value", ["a -> b", ["a", "b"], {"chain": "a -> b"}, {"chain": ["a", "b"]}])
def test_a_chain_is_written_as_text_or_list(value: object) -> None:
    assert PriorSpec.model_validate(value).chain == ("a", "b")


def test_a_prior_may_be_about_nodes_or_values() -> None:
    assert PriorSpec.model_validate({"nodes": ["a", "b"], "reason": "slow"}).nodes == ("a", "b")
    assert PriorSpec.model_validate({"values": {"a": {"x": 1}}}).values == {"a": {"x": 1}}
    assert PreferSpec.model_validate("a").weight == 2.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "is empty; give chain, nodes or values"),
        ({"chain": "a", "nodes": ["a"]}, "has both chain and nodes; remove one of them"),
        ({"values": {"a": {}}}, "values: names a node without values"),
        ({"chain": "a -> a"}, "chain[0]: node 'a' is in it twice"),
        ({"nodes": 3}, "nodes[0]: must be a list of node ids"),
        ({"chain": "a", "weight": 0.0}, "weight: must be above 0, not 0.0"),
    ],
)
def test_priors_that_say_nothing_are_refused(value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PreferSpec.model_validate(value)
    assert str(input_error(refused.value)).startswith(words)
