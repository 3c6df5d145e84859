"""Models in memory as files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from builders import mlp

from autoopt.data.in_memory import model_file
from autoopt.errors import InputError


def test_equal_models_are_one_file_that_is_named_by_the_graph(tmp_path: Path) -> None:
    model = mlp()
    model.graph.name = "../my graph"
    first, second = model_file(model, tmp_path), model_file(model, tmp_path)
    assert first == second
    assert Path(first).name == "my_graph.onnx"
    assert onnx.load(str(first)) == model
    assert model_file(mlp(seed=1), tmp_path) != first


def test_a_path_stays(tmp_path: Path) -> None:
    assert model_file("m.onnx", tmp_path) == "m.onnx"
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_serialised_is_refused(tmp_path: Path) -> None:
    class Huge:
        def SerializeToString(self) -> bytes:
            raise ValueError("larger than 2 GB")

    with pytest.raises(InputError, match="larger than 2 GB"):
        model_file(Huge(), tmp_path)
