"""Nodes of the pass graph."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoopt.spec.nodes import PassNode
from autoopt.spec.pass_settings import Fixed, OwnSearch
from autoopt.spec.validation import input_error


def node(value: object) -> PassNode:
    return PassNode.model_validate(value)


def test_a_bare_text_is_the_pass() -> None:
    assert node("simplify") == node({"pass": "simplify"})


def test_parameters_are_settings_by_name() -> None:
    assert node({"pass": "p", "params": {"a": 3, "b": "search"}}).settings == {"a": Fixed(3), "b": OwnSearch()}
    assert node({"pass": "p", "params": None}).settings == {}
    assert node({"pass": "p", "params": "search"}).settings == {}


@pytest.mark.parametrize(
    ("fields", "default", "expected"),
    [
        ({}, "none", False),
        ({}, "all", True),
        ({"search": "all"}, "none", True),
        ({"search": "none"}, "all", False),
        ({"params": "search"}, "none", True),
        ({"params": "default"}, "all", False),
        ({"params": "default", "search": "all"}, "all", False),
    ],
)
def test_a_node_overrides_which_parameters_are_searched(
    fields: dict[str, object], default: str, expected: bool
) -> None:
    assert node({"pass": "p", **fields}).searches_all(default) is expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"params": [1]}, "params: must be a mapping of parameters, or search, or default"),
        ({"params": {"a": {"search": []}}}, "params.a.search: needs at least one value"),
        ({"objectives": []}, "objectives: is empty; name a metric, or remove the field"),
        ({"host": {"type": "docker"}}, "host.image: is required for type docker"),
        ({"parms": {}}, "parms: unknown field; did you mean 'params'?"),
    ],
)
def test_mistakes_are_reported_at_their_place(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        node({"pass": "p", **fields})
    assert str(input_error(refused.value)) == words
