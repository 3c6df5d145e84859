import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("what", ["latest", "run", "digest", "file"])
def test_the_steps_to_the_best_model_however_it_is_named(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path, what: str
) -> None:
    best = filled["best"]["artifact"]
    (tmp_path / "copy.onnx").write_bytes(b"best")
    named = {"latest": "latest", "run": filled["run"], "digest": best[:10], "file": "copy.onnx"}[what]
    code, out, err = call("lineage", named, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["artifact"] == best
    assert document["source"] == filled["baseline"]["artifact"]
    assert [step["pass"] for step in document["steps"]] == ["batchnorm_folding", "static_quantization"]
    assert document["steps"][1]["params"] == {"per_channel": True}
    assert set(document["steps"][0]) >= {"pass", "params", "input", "output", "outcome", "seconds", "environment"}


def test_a_model_with_external_data_is_known_by_the_recipe_beside_it(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"graph only")
    recipe = {"result": filled["best"]["artifact"], "session_options": {}}
    (out / "recipe.json").write_text(json.dumps(recipe))
    assert json.loads(call("lineage", "out/model.onnx", "--json").out)["artifact"] == filled["best"]["artifact"]


def test_an_unknown_name_is_told_with_all_that_it_might_have_been(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    said = call("lineage", "nope")
    assert (said.code, said.out) == (2, "")
    assert (
        said.err
        == "nope: no run or artifact of this store, and no file, has this name; 'autoopt runs' lists the runs\n"
    )
    (tmp_path / "other.onnx").write_bytes(b"of somebody else")
    assert "no run of this store has read or made this file" in call("lineage", "other.onnx").err


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", '{"session_options": 7}'])
def test_a_foreign_recipe_beside_a_model_is_no_error_of_the_program(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path, content: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"another model")
    (tmp_path / "recipe.json").write_text(content)
    code, out, err = call("lineage", "model.onnx")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_it_is_readable(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    out = call("lineage").out
    assert "1. batchnorm_folding" in out
    assert "per_channel=true" in out
