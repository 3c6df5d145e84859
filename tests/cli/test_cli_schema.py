"""`autoopt schema`, and the files that name its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autoopt.spec.reader import read_document

Call = Any
DAGS = Path(__file__).parents[2] / "dags"
LINE = "# yaml-language-server: $schema="


def schema_of(file: Path) -> Any:
    """The schema that the first line of a file names."""
    name = file.read_text().splitlines()[0].removeprefix(LINE)
    return json.loads((file.parent / name).read_text())


def test_the_schema_of_the_shipped_dags_is_up_to_date(call: Call) -> None:
    assert (DAGS / "dag.schema.json").read_text() == call("schema", "--no-passes").out, (
        "run: autoopt schema --no-passes -o dags/dag.schema.json"
    )


@pytest.mark.parametrize("file", sorted(DAGS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_shipped_dags_name_a_schema_that_they_meet(file: Path) -> None:
    jsonschema.validate(read_document(file).value, schema_of(file))


def test_passes_and_their_parameters_are_described_and_other_passes_are_valid(call: Call) -> None:
    schema = json.loads(call("schema", "dag").out)
    short, full = schema["$defs"]["PassNode"]["anyOf"]
    assert {"const": "simplify"}.items() <= short["anyOf"][
        [n.get("const") for n in short["anyOf"]].index("simplify")
    ].items()
    rules = {rule["if"]["properties"]["pass"]["const"]: rule["then"] for rule in full["allOf"]}
    parameters = rules["static_quantization"]["properties"]["params"]["properties"]
    assert "MinMax" in parameters["calibrate_method"]["description"]
    dag = {"name": "d", "passes": {"a": {"pass": "my_own", "params": {"x": 1}}}, "chains": [["a"]]}
    jsonschema.validate(dag, schema)


def test_the_schema_of_zoo_files_can_be_written_to_a_file(call: Call, home: Path) -> None:
    said = call("schema", "zoo", "-o", "zoo.schema.json")
    assert (said.code, said.out) == (0, "wrote zoo.schema.json\n")
    schema = json.loads(Path("zoo.schema.json").read_text())
    jsonschema.validate({"name": "z", "models": ["a.onnx"]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "z", "modles": ["a.onnx"]}, schema)


def test_a_kind_without_schema_and_a_folder_that_does_not_exist_are_one_line(call: Call) -> None:
    said = call("schema", "run")
    assert (said.code, said.err.count("\n")) == (2, 1)
    said = call("schema", "-o", "none/x.json")
    assert (said.code, said.err) == (2, "none/x.json: cannot be written (No such file or directory)\n")
