"""The base of all configuration models."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import Field, ValidationError

from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import MAX_NAME, StrictModel, check_name


class Colour(StrictModel):
    short: ClassVar[str] = "name"

    name: str
    strength: float = Field(default=1.0, alias="how-strong")


def test_a_bare_text_is_the_short_form() -> None:
    assert Colour.model_validate("red") == Colour(name="red")


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Colour(name="red").name = "green"


@pytest.mark.parametrize(
    "fields", [{"name": 3}, {"name": "red", "how-strong": "1"}, {"name": "red", "how-strong": True}]
)
def test_nothing_is_converted(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Colour.model_validate(fields)


def test_infinite_numbers_are_refused() -> None:
    with pytest.raises(ValidationError, match="finite"):
        Colour.model_validate({"name": "red", "how-strong": float("inf")})


def test_an_unknown_field_names_the_nearest_as_users_write_it() -> None:
    with pytest.raises(ValidationError) as refused:
        Colour.model_validate({"name": "red", "how_strong": 2.0})
    error = refused.value.errors()[0]["ctx"]["error"]
    assert isinstance(error, FieldError)
    assert (error.place, error.remedy) == (("how_strong",), "did you mean 'how-strong'?")


def test_the_json_schema_has_the_short_form() -> None:
    schema = Colour.model_json_schema()
    assert schema["anyOf"][0] == {"type": "string"}
    assert set(schema["anyOf"][1]["properties"]) == {"name", "how-strong"}


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * MAX_NAME])
def test_names_of_letters_digits_and_a_few_marks(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "a\n", "x" * (MAX_NAME + 1)])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(FieldError):
        check_name(name)
