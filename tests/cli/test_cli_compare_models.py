"""`autoopt compare`: two models output by output and layer by layer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import mlp, write
from onnx import numpy_helper


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
