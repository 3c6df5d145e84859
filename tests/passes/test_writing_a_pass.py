"""The examples of docs/writing_a_pass.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from micro_models import MODELS, made
from onnx import ModelProto

from autoopt.model import io
from autoopt.passes.runner import describe, run
from autoopt.registry import info_from_json

PAGE = Path(__file__).parents[2] / "docs" / "writing_a_pass.md"


EXAMPLES = re.findall(r"```python\n(# file: my_passes.py\n.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "my_passes.py"
    path.write_text("\n".join(EXAMPLES))
    return str(path)


def zero_slope() -> ModelProto:
    return made("g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha = 0.0> (x) }")


def step(tmp_path: Path, script: str, name: str, model: str, ir_version: int = 8, **params: Any) -> dict[str, Any]:
    proto = zero_slope() if model == "zero_slope" else MODELS[model]()
    proto.ir_version = ir_version
    proto.doc_string = "a model with much to say about itself"
    payload = {
        "model": {"path": str(io.save(proto, tmp_path / "source"))},
        "steps": [{"pass": name, "params": params}],
        "output": str(tmp_path / "out"),
        "user_script": script,
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_all_examples_are_found() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize(
    ("name", "model", "outcome"),
    [
        ("shorten_doc", "mlp", "ok"),
        ("lower_ir", "mlp", "unchanged"),
        ("blocks", "mlp", "unchanged"),
        ("blocks", "relu_only", "refused"),
        ("levels", "mlp", "unchanged"),
        ("plain_relu", "mlp", "unchanged"),
        ("plain_relu", "zero_slope", "ok"),
        ("tidy", "no_ops", "ok"),
    ],
)
def test_examples_have_the_documented_outcome(tmp_path: Path, script: str, name: str, model: str, outcome: str) -> None:
    assert step(tmp_path, script, name, model)["outcome"] == outcome


def test_the_function_changes_a_model_of_a_newer_version(tmp_path: Path, script: str) -> None:
    changed = step(tmp_path, script, "lower_ir", "mlp", ir_version=9)
    assert changed["outcome"] == "ok"
    assert io.load(Path(changed["path"], "model.onnx")).ir_version == 8


def test_examples_declare_the_documented_parameters(script: str) -> None:
    infos = {info["name"]: info_from_json(info) for info in describe({"user_script": script})["passes"]}
    assert infos["shorten_doc"].parameter("length").search.values() == (0, 16, 64)  # type: ignore[union-attr]
    assert infos["lower_ir"].parameter("version").default == 8
    assert infos["levels"].parameter("symmetric").default.choose({"kind": "int8"}) is True


def test_the_minimal_pass_has_at_most_eight_lines() -> None:
    body = EXAMPLES[0].split("\n\n\n", 1)[1].strip().splitlines()
    assert len([line for line in body if line.strip()]) <= 8
