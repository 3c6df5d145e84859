"""Places and lines of fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoopt.spec.source import FieldError, Source, below, dotted

SOURCE = Source("dag.yaml", Path("/models"), {(): 1, ("a",): 2, ("a", 0): 3})


def test_a_field_without_a_line_has_that_of_its_nearest_parent() -> None:
    assert SOURCE.line(("a", 0)) == 3
    assert SOURCE.line(("a", 1, "b")) == 2
    assert SOURCE.line(("c",)) == 1
    assert Source("<dict>").line(("c",)) == 1


def test_an_error_names_file_line_field_and_remedy() -> None:
    error = SOURCE.error(("a", 0), "is wrong", "make it right")
    assert str(error) == "dag.yaml:3: a[0]: is wrong; make it right"


def test_a_source_survives_json_and_then_names_the_whole_path() -> None:
    copy = Source.from_json(json.loads(json.dumps(SOURCE.to_json())))
    assert copy == Source("/models/dag.yaml", Path("/models"), SOURCE.lines)
    assert Source.from_json(copy.to_json()) == copy
    assert Source.from_json(Source("<dict>").to_json()).file == "<dict>"


@pytest.mark.parametrize(
    ("place", "text"),
    [((), ""), (("a",), "a"), (("a", "b", 0, 1, "c"), "a.b[0][1].c"), ((0, "a"), "[0].a")],
)
def test_places_are_dotted(place: tuple[str | int, ...], text: str) -> None:
    assert dotted(place) == text


def test_errors_below_a_field_have_its_place_first() -> None:
    with pytest.raises(FieldError) as raised, below("passes", "a"), below("params", 0):
        raise FieldError("is wrong", place=("x",), remedy="make it right")
    assert raised.value.place == ("passes", "a", "params", 0, "x")
    assert raised.value.remedy == "make it right"


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), below("a"):
        raise KeyError("b")
