"""`autoopt import-olive`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

Call = Any
CONFIG = {
    "input_model": {"type": "OnnxModel", "model_path": "model.onnx"},
    "passes": {"clean": {"type": "OnnxPeepholeOptimizer"}, "q": {"type": "OnnxDynamicQuantization", "lora": 1}},
    "evaluators": {"e": {"metrics": [{"type": "latency", "sub_types": [{"name": "p50", "priority": 1}]}]}},
    "search_strategy": {"sampler": "sequential"},
}


@pytest.fixture
def config(home: Path) -> Path:
    folder = write(mlp(), home.parent / "work").parent
    file = folder / "olive.json"
    file.write_text(json.dumps(CONFIG, indent=1))
    return file


def test_it_writes_a_dag_that_plans_and_says_what_is_missing(call: Call, config: Path) -> None:
    said = call("import-olive", str(config))
    assert (said.code, said.err) == (0, "")
    assert "passes.q.lora: is left out: dynamic_quantization has no such parameter" in said.out
    assert said.out.endswith("wrote olive.yaml; next: autoopt plan olive.yaml\n")
    text = Path("olive.yaml").read_text()
    assert text.startswith(
        "# yaml-language-server: $schema=.autoopt/dag.schema.json\n# Converted from Olive's olive.json."
    )
    planned = json.loads(call("plan", "olive.yaml", "--json").out)
    assert [chain["name"] for chain in planned["chains"]] == ["clean -> q"]
    assert planned["point_count"] > 1
    again = call("import-olive", str(config))
    assert (again.code, again.err) == (2, "olive.yaml: already exists; use --force to overwrite it\n")


def test_json_has_the_dag_and_the_remarks(call: Call, config: Path) -> None:
    document = json.loads(call("import-olive", str(config), "-o", "work/dag.yaml", "--json").out)
    assert document["file"] == "work/dag.yaml"
    assert document["dag"]["model"] == "model.onnx"
    assert document["dag"]["stages"] == ["clean", "q"]
    assert len(document["remarks"]) == 1
    assert call("plan", "work/dag.yaml").code == 0


def test_a_file_that_is_no_configuration_is_one_line(call: Call, home: Path) -> None:
    Path("broken.json").write_text("{")
    said = call("import-olive", "broken.json")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("broken.json:1: is not JSON")
    assert call("import-olive", "none.json").code == 2
