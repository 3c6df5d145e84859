"""Nodes of the pass graph."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoopt.space import Categorical, Float, Integer
from autoopt.spec.nodes import Fixed, OwnDefault, OwnSearch, PassNode, Searched, read_setting
from autoopt.spec.source import FieldError
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
        ({"host": {"type": "python_env"}}, "host.python: is required for type python_env"),
        ({"parms": {}}, "parms: unknown field; did you mean 'params'?"),
    ],
)
def test_mistakes_are_reported_at_their_place(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        node({"pass": "p", **fields})
    assert str(input_error(refused.value)) == words


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        (3, Fixed(3)),
        (None, Fixed(None)),
        ([1, 2], Fixed([1, 2])),
        ({"search": [1], "more": 2}, Fixed({"search": [1], "more": 2})),
        ("search", OwnSearch()),
        ("default", OwnDefault()),
        ({"search": {"low": 1, "high": 5, "step": 2}}, Searched(Integer(1, 5, step=2))),
        ({"search": {"low": 1, "high": 8, "log": True}}, Searched(Integer(1, 8, log=True))),
        ({"search": {"low": 0, "high": 1, "step": 0.5}}, Searched(Float(0, 1, step=0.5))),
        ({"search": {"low": 1, "high": 100, "count": 3, "log": True}}, Searched(Float(1, 100, count=3, log=True))),
    ],
)
def test_values_searches_and_words(value: object, setting: object) -> None:
    assert read_setting(value) == setting


def test_a_list_is_searched_over_its_values() -> None:
    setting = read_setting({"search": ["a", "b"]})
    assert isinstance(setting, Searched)
    assert isinstance(setting.values, Categorical)
    assert setting.values.values() == ("a", "b")


@pytest.mark.parametrize(
    ("search", "place", "words"),
    [
        ([], ("search",), "needs at least one value"),
        (3, ("search",), "must be a list of values or"),
        ({"low": 1}, ("search", "high"), "is required"),
        ({"low": 1, "high": 2, "stp": 1}, ("search", "stp"), "unknown field"),
        ({"low": "1", "high": 2}, ("search", "low"), "must be a number, not '1'"),
        ({"low": 1, "high": True}, ("search", "high"), "must be a number, not True"),
        ({"low": 1, "high": 2, "log": 1}, ("search", "log"), "must be true or false, not 1"),
        ({"low": 1, "high": 2, "count": 1.5}, ("search", "count"), "must be a whole number"),
        ({"low": 2, "high": 1}, ("search",), "low 2 is above high 1"),
        ({"low": 0.5, "high": 1}, ("search",), "one of step or count"),
    ],
)
def test_malformed_searches_are_refused_at_their_place(search: object, place: tuple[str, ...], words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        read_setting({"search": search})
    assert refused.value.place == place
