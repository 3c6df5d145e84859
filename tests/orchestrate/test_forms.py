"""Forms of deployments: their fields, and the files and tags to choose from."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError, validate

from autoopt.orchestrate.forms import dag_files, only_choices, tags_of, with_choices, without_other_fields, zoo_files
from autoopt.spec.zoo import load_zoo
from flows.nightly_sweep import nightly_sweep
from flows.optimize_model import optimize_model

DAG = "name: d\npasses: [name_fix]\nchains: [[name_fix]]\n"


def test_dags_zoos_and_tags_are_choices(tmp_path: Path) -> None:
    for name in ("dag.yaml", "more/other.yaml", ".hidden/dag.yaml", "broken.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(DAG if name != "broken.yaml" else "name: [")
    (tmp_path / "zoo.yaml").write_text("name: z\nmodels: [{path: a, tags: [cnn, int8]}, {path: b, tags: [cnn]}]\n")
    assert dag_files(tmp_path) == ["dag.yaml", "more/other.yaml"]
    assert zoo_files(tmp_path) == ["zoo.yaml"]
    assert tags_of(load_zoo(tmp_path / "zoo.yaml")) == ["cnn", "int8"]


def test_numbers_are_plain_fields_and_a_dag_is_chosen_typed_or_written() -> None:
    form = with_choices(parameter_schema(optimize_model).properties, {"dag": ["dag.yaml"]})
    assert [one["title"] for one in form["dag"]["anyOf"]] == ["choose", "path", "content"]
    assert form["dag"]["anyOf"][0]["enum"] == ["dag.yaml"]
    assert (form["trials"]["type"], form["trials"]["minimum"]) == ("integer", 1)
    assert (form["minutes"]["type"], form["minutes"]["exclusiveMinimum"]) == ("number", 0)
    assert form["model"]["type"] == "string"
    assert [one["title"] for one in form["data"]["anyOf"]] == ["path", "content"]
    assert form["workers"]["default"] == 2
    assert form["remeasure"]["enum"] == ["undecided", "all"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"only": "gpu"}, "'gpu' is not one of ['cnn']"),
        ({"zoo": "other.yaml"}, "'other.yaml' is not one of ['zoo.yaml']"),
        ({"trials": 0}, "0 is less than the minimum of 1"),
        ({"minutes": 0}, "0 is less than or equal to the minimum of 0"),
        ({"workers": "two"}, "'two' is not of type 'integer'"),
        ({"olny": "cnn"}, "Additional properties are not allowed ('olny' was unexpected)"),
    ],
)
def test_a_night_is_refused_in_the_words_of_its_form(values: dict[str, object], reason: str) -> None:
    schema = parameter_schema(nightly_sweep)
    schema.properties = with_choices(schema.properties, {"dag": ["dag.yaml"]})
    only_choices(schema.properties, "zoo", ["zoo.yaml"])
    only_choices(schema.properties, "only", ["cnn"])
    document = without_other_fields(schema).model_dump(exclude_unset=True)
    validate({"zoo": "zoo.yaml", "only": "cnn", "dag": "elsewhere.yaml", "trials": 3}, document, raise_on_error=True)
    with pytest.raises(ValidationError) as refused:
        validate({"zoo": "zoo.yaml", **values}, document, raise_on_error=True)
    assert reason in str(refused.value)


def test_a_search_is_refused_for_a_field_that_it_does_not_have() -> None:
    schema = parameter_schema(optimize_model)
    schema.properties = with_choices(schema.properties, {})
    document = without_other_fields(schema).model_dump(exclude_unset=True)
    validate({"dag": "dag.yaml", "search": {"sampler": "tpe"}}, document, raise_on_error=True)
    with pytest.raises(ValidationError, match=r"Validation failed for field 'search'.*'trails' is not one of"):
        validate({"dag": "dag.yaml", "search": {"trails": 3}}, document, raise_on_error=True)
