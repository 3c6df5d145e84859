"""Settings of pass parameters."""

from __future__ import annotations

import pytest

from autoopt.space import Categorical, Float, Integer
from autoopt.spec.pass_settings import Fixed, OwnDefault, OwnSearch, Searched, read_setting
from autoopt.spec.source import FieldError


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
