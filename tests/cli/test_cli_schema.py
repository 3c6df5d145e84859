"""The JSON Schemas of dag.yaml and zoo.yaml, and the files that name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoopt.cli.init import dag_schema, schema_line
from autoopt.spec.reader import read_document

DAGS = Path(__file__).parents[2] / "dags"
LINE = "# yaml-language-server: $schema="


def schema_of(file: Path) -> Any:
    """The schema that the first line of a file names."""
    name = file.read_text().splitlines()[0].removeprefix(LINE)
    return json.loads((file.parent / name).read_text())


def test_the_schema_of_the_shipped_dags_is_up_to_date() -> None:
    shipped = (DAGS / "dag.schema.json").read_text()
    assert shipped == dag_schema(with_passes=False), "run: python scripts/docs/reference.py"


@pytest.mark.parametrize("file", sorted(DAGS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_shipped_dags_name_a_schema_that_they_meet(file: Path) -> None:
    jsonschema.validate(read_document(file).value, schema_of(file))


def test_passes_and_their_parameters_are_described_and_other_passes_are_valid() -> None:
    schema = json.loads(dag_schema())
    short, full = schema["$defs"]["PassNode"]["anyOf"]
    assert {"const": "simplify"}.items() <= short["anyOf"][
        [n.get("const") for n in short["anyOf"]].index("simplify")
    ].items()
    rules = {rule["if"]["properties"]["pass"]["const"]: rule["then"] for rule in full["allOf"]}
    parameters = rules["static_quantization"]["properties"]["params"]["properties"]
    assert "MinMax" in parameters["calibrate_method"]["description"]
    dag = {"name": "d", "passes": {"a": {"pass": "my_own", "params": {"x": 1}}}, "chains": [["a"]]}
    jsonschema.validate(dag, schema)


def test_the_schema_of_zoo_files_is_written_beside(home: Path) -> None:
    assert schema_line() == f"{LINE}.autoopt/dag.schema.json"
    schema = json.loads(Path(".autoopt/zoo.schema.json").read_text())
    jsonschema.validate({"name": "z", "models": ["a.onnx"]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "z", "modles": ["a.onnx"]}, schema)
