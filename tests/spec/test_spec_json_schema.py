"""The JSON Schema says yes to what the loader takes, and no to what is plainly wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoopt.spec import load_dag
from autoopt.spec.dag import DagSpec
from autoopt.spec.json_schema import json_schema
from autoopt.spec.reader import read_document
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.zoo import ZooSpec

DAGS = sorted(Path(__file__).parents[2].glob("dags/*.yaml"))


@pytest.mark.parametrize("file", DAGS, ids=lambda f: f.name)
def test_the_dags_that_ship_are_valid(file: Path) -> None:
    jsonschema.validate(read_document(file).value, json_schema())


@pytest.mark.parametrize("model", [DagSpec, ZooSpec])
def test_every_property_has_a_description(model: type[StrictModel]) -> None:
    schema: Any = json_schema(model)
    objects = [schema]
    for definition in schema["$defs"].values():
        objects += definition.get("anyOf", [definition])
    properties = [item for each in objects for item in each.get("properties", {}).items()]
    assert len(properties) > 20
    assert [name for name, content in properties if not content.get("description")] == []


@pytest.mark.parametrize(
    "broken", ["passes: simplify", "passes: {a: {pas: simplify}}", "target: {devcie: cpu}", "level: 7"]
)
def test_a_broken_dag_is_refused(broken: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text("name: d\npasses: {a: simplify}\nchains: [[a]]\n")
    check = jsonschema.Draft202012Validator(json_schema())
    value: Any = read_document(file).value
    assert check.is_valid(value)
    file.write_text(broken)
    change: Any = read_document(file).value
    assert not check.is_valid({**value, **change})


@pytest.mark.parametrize("field", ["prefer", "forbid", "require"])
@pytest.mark.parametrize("prior", ["a -> b", ["a", "b"], {"nodes": "a", "reason": "slow"}, {"values": {"a": {"p": 1}}}])
def test_priors_have_short_forms(field: str, prior: object) -> None:
    dag = {"name": "m", "passes": ["a", "b"], "chains": ["a -> b"], field: [prior]}
    assert load_dag(dag)
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(dag)


def test_threads_may_be_all_or_a_list() -> None:
    check = jsonschema.Draft202012Validator(json_schema())
    dag = {"name": "m", "passes": ["a"], "chains": ["a"]}
    assert check.is_valid({**dag, "target": {"threads": [1, "all"]}})
    assert not check.is_valid({**dag, "target": {"threads": "many"}})


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
