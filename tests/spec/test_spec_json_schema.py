"""The JSON Schema says yes to what the loader takes, and no to what is plainly wrong."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from autoopt.spec.json_schema import json_schema
from autoopt.spec.reader import read_document
from autoopt.spec.zoo import ZooSpec

DAGS = sorted(Path(__file__).parents[2].glob("dags/*.yaml"))


@pytest.mark.parametrize("file", DAGS, ids=lambda f: f.name)
def test_the_dags_that_ship_are_valid(file: Path) -> None:
    jsonschema.validate(read_document(file).value, json_schema())


def test_short_forms_are_valid_and_unknown_fields_are_not() -> None:
    check = jsonschema.Draft202012Validator(json_schema())
    short = {"name": "m", "passes": ["a"], "stages": ["a", ["b", None]], "target": "cpu", "data": "x", "search": "all"}
    assert check.is_valid(short)
    assert not check.is_valid({**short, "nmae": 1})
    assert not check.is_valid({**short, "edges": ["a -> b"]})
    assert not check.is_valid({**short, "search": {"trials": "ten"}})


def test_zoo_files_have_a_schema() -> None:
    check = jsonschema.Draft202012Validator(json_schema(ZooSpec))
    assert check.is_valid({"name": "z", "models": ["a.onnx", {"path": "b", "tags": ["x"]}]})
    assert not check.is_valid({"name": "z", "models": [{"pth": "b"}]})
