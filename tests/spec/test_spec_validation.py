"""Errors of pydantic as one line."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import Field, ValidationError

from autoopt.spec.strict_model import StrictModel
from autoopt.spec.validation import input_error, problems_of


class Inner(StrictModel):
    colour: Literal["red", "green"] = "red"
    size: int = Field(default=1, ge=1, le=9)


class Outer(StrictModel):
    inner: Inner = Inner()
    names: tuple[str, ...] = Field(default=(), strict=False)
    needed: str


def refusal(value: object) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(value)
    return refused.value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "needed: is required"),
        ({"needed": "x", "inner": {"colour": "gren"}}, "inner.colour: must be one of red, green, not 'gren'"),
        ({"needed": "x", "inner": {"size": 0}}, "inner.size: must be at least 1, not 0"),
        ({"needed": "x", "inner": {"size": 10}}, "inner.size: must be at most 9, not 10"),
        ({"needed": "x", "inner": {"size": 1.5}}, "inner.size: must be a whole number, not 1.5"),
        ({"needed": "x", "inner": 3}, "inner: must be a mapping, not 3"),
        ({"needed": "x", "names": ["a", 1]}, "names[1]: must be text, not 1"),
        ({"neded": "x"}, "neded: unknown field; did you mean 'needed'?"),
        ({"needed": 1, "colour": "x"}, "colour: unknown field; known: inner, names, needed"),
        ({"needed": list(range(99))}, "needed: must be text, not [0, 1, 2, 3, 4,"),
    ],
)
def test_each_kind_of_mistake_is_one_line_with_its_place(value: object, text: str) -> None:
    assert str(input_error(refusal(value))).startswith(text)


def test_all_mistakes_are_found_but_no_missing_field_beside_an_unknown_one() -> None:
    found = problems_of(refusal({"inner": {"size": 0}, "names": 3}))
    assert [problem.place for problem in found] == [("inner", "size"), ("names",), ("needed",)]
    found = problems_of(refusal({"inner": {"sise": 0}}))
    assert [problem.place for problem in found] == [("inner", "sise")]


def test_values_from_no_file_are_named_by_what_they_belong_to() -> None:
    assert input_error(refusal({}), "search").where == "search.needed"
