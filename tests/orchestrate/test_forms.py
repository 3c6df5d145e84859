"""Forms of deployments: their fields, the files and tags to choose from, and what the server refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError, validate

from autoopt.orchestrate.forms import choices, dag_files, file_or_content, file_or_path, tags_of, with_types
from autoopt.spec.search import SearchFields
from autoopt.spec.zoo import load_zoo
from flows.nightly_sweep import nightly_sweep
from flows.optimize_model import optimize_model

DAG = "name: d\npasses: [name_fix]\nchains: [[name_fix]]\n"


def model_form(files: list[str]) -> dict[str, Any]:
    form = with_types(optimize_model, {"dag": file_or_content(files), "search": SearchFields | None})
    document: dict[str, Any] = form.parameters.model_dump(exclude_unset=True)
    return document


def test_dags_and_tags_are_found(tmp_path: Path) -> None:
    for name in ("dag.yaml", "more/other.yaml", ".hidden/dag.yaml", "broken.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(DAG if name != "broken.yaml" else "name: [")
    (tmp_path / "zoo.yaml").write_text("name: z\nmodels: [{path: a, tags: [cnn, int8]}, {path: b, tags: [cnn]}]\n")
    assert dag_files(tmp_path) == [str(tmp_path / "dag.yaml"), str(tmp_path / "more/other.yaml")]
    assert tags_of(load_zoo(tmp_path / "zoo.yaml")) == ["cnn", "int8"]


def test_a_dag_is_chosen_typed_or_written() -> None:
    form = model_form(["dag.yaml", "other.yaml"])
    fields = form["properties"]
    assert [one["title"] for one in fields["dag"]["anyOf"]] == ["choose", "path", "content"]
    assert fields["dag"]["anyOf"][0]["enum"] == ["dag.yaml", "other.yaml"]
    assert form["required"] == ["dag"]
    assert [one["title"] for one in model_form([])["properties"]["dag"]["anyOf"]] == ["path", "content"]
    for dag in ("dag.yaml", "/elsewhere/dag.yaml", {"name": "d"}):
        validate({"dag": dag}, form, raise_on_error=True)


def test_the_flow_itself_takes_what_it_took() -> None:
    form = with_types(optimize_model, {"dag": choices(["dag.yaml"])})
    assert (form.name, form.fn.__module__, form.__name__) == (
        "optimize_model",
        "flows.optimize_model",
        "optimize_model",
    )
    before = parameter_schema(optimize_model).model_dump()["properties"]
    after = form.parameters.model_dump()["properties"]
    assert {name for name in before if before[name] != after[name]} == {"dag"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"only": "gpu"}, "'gpu' is not one of ['cnn', 'rnn']"),
        ({"zoo": "other.yaml"}, "'zoo.yaml' was expected"),
        ({"trials": 0}, "0 is less than the minimum of 1"),
        ({"workers": "two"}, "'two' is not of type 'integer'"),
    ],
)
def test_a_night_is_refused_in_the_words_of_its_form(values: dict[str, object], reason: str) -> None:
    types = {
        "zoo": choices(["zoo.yaml"]),
        "only": choices(["cnn", "rnn"]) | None,
        "dag": file_or_path(["dag.yaml"]) | None,
    }
    document = with_types(nightly_sweep, types).parameters.model_dump(exclude_unset=True)
    validate({"zoo": "zoo.yaml", "only": "cnn", "dag": "elsewhere.yaml", "trials": 3}, document, raise_on_error=True)
    with pytest.raises(ValidationError) as refused:
        validate({"zoo": "zoo.yaml", **values}, document, raise_on_error=True)
    assert reason in str(refused.value)


def test_a_search_is_refused_for_a_field_that_it_does_not_have() -> None:
    form = model_form(["dag.yaml"])
    validate({"dag": "dag.yaml", "search": {"sampler": "tpe", "trials": 4}}, form, raise_on_error=True)
    with pytest.raises(ValidationError):
        validate({"dag": "dag.yaml", "search": {"trails": 3}}, form, raise_on_error=True)
