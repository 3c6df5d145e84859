"""`autoopt lineage` and `compare`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import mlp, write
from onnx import numpy_helper

from autoopt.store import RunRecord, open_store


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


@pytest.fixture
def slower(filled: dict[str, Any], home: Path) -> str:
    """A second run whose best model is slower for certain."""
    result = copy.deepcopy(filled)
    result["best"]["ratios"]["latency_p50"] = {"value": 0.5, "low": 0.45, "high": 0.55}
    with open_store(None, home) as store:
        run = store.runs.create(RunRecord(id="", name="quick", identity="j", model=filled["baseline"]["artifact"]))
        result["run"] = run.id
        store.runs.finish(run.id, "finished", result)
    return run.id


def test_a_regression_is_exit_code_1(call: Callable[..., Any], filled: dict[str, Any], slower: str) -> None:
    code, out, _ = call("compare", filled["run"], slower)
    assert code == 1
    assert out.endswith("regressed\n")
    code, out, _ = call("compare", slower, filled["run"], "--json")
    assert code == 0
    verdicts = {d["metric"]: d["verdict"] for d in json.loads(out)["differences"]}
    assert verdicts["latency_p50"] == "better"


def test_a_run_is_not_compared_with_itself(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("compare", "latest")
    assert (code, out) == (2, "")
    assert err.startswith(f"OLD and NEW are both run {filled['run']}; name an earlier run")


def test_the_second_run_is_the_latest_unless_named(
    call: Callable[..., Any], filled: dict[str, Any], slower: str
) -> None:
    assert json.loads(call("compare", filled["run"], "--json").out)["second"] == slower


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    """A model, and one with other weights in its last layer."""
    first = write(mlp(), tmp_path / "first")
    proto = onnx.load(first)
    weights = max(proto.graph.initializer, key=lambda initializer: initializer.name)
    array = numpy_helper.to_array(weights)
    weights.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array * 1.5), weights.name))
    (tmp_path / "second").mkdir()
    onnx.save(proto, tmp_path / "second" / "model.onnx")
    return str(first), str(tmp_path / "second" / "model.onnx")


def test_a_model_equals_itself(call: Callable[..., Any], models: tuple[str, str]) -> None:
    code, out, err = call("compare", models[0], models[0])
    assert (code, err) == (0, "")
    assert "all common layers are equal" in out
    assert "0 only in the first, 0 only in the second" in out


def test_only_layers_that_differ_are_shown_unless_all_are_asked_for(
    call: Callable[..., Any], models: tuple[str, str]
) -> None:
    some, every = (call("compare", *models, *options).out.splitlines() for options in ((), ("--all",)))
    assert len([line for line in some if line.startswith("  ")]) > 0
    assert len(some) < len(every)
    assert some[0].startswith("output ")
    assert "cosine" in some[0]


def test_the_document_has_the_outputs_and_layers(call: Callable[..., Any], models: tuple[str, str]) -> None:
    document = json.loads(call("compare", *models, "--json").out)
    assert document["items"] == 4
    assert {"outputs", "tensors", "only_source", "only_candidate", "first_different"} <= set(document)


def test_an_unreadable_model_and_unreadable_data_are_named_once(
    call: Callable[..., Any], models: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    for arguments in ((models[0], "bad.onnx"), (*models, "--data", "no.npz")):
        code, out, err = call("compare", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.count(Path(arguments[-1]).name) == 1
