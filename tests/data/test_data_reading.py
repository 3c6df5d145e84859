"""Data in memory as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from builders import mlp

from autoopt.data.reading import data_file, model_file
from autoopt.errors import InputError


def test_arrays_become_one_file_for_equal_content(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "labels": np.array(["a", "b"])}
    file = data_file(arrays, tmp_path)
    assert file == data_file({name: value.copy() for name, value in arrays.items()}, tmp_path)
    with np.load(str(file)) as read:
        for name, value in arrays.items():
            assert (read[name] == value).all()


def test_a_data_frame_becomes_a_table_without_its_index(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [0.1, 2.0], "label": [0, 1]}, index=[5, 6])
    file = data_file(frame, tmp_path)
    assert Path(str(file)).read_text() == "a,label\n0.1,0\n2.0,1\n"


def test_paths_and_configurations_stay(tmp_path: Path) -> None:
    for data in ("d.npz", Path("d.csv"), {"path": "d.npz"}, {}):
        assert data_file(data, tmp_path) == data
    assert not list(tmp_path.iterdir())


def test_arrays_of_python_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="array 'x'"):
        data_file({"x": np.array([object()])}, tmp_path)


def test_lists_are_arrays(tmp_path: Path) -> None:
    file = data_file({"x": [[1.0, 2.0], [3.0, 4.0]], "labels": (0, 1)}, tmp_path)
    with np.load(str(file)) as arrays:
        assert arrays["x"].shape == (2, 2)
        assert arrays["labels"].tolist() == [0, 1]


def test_anything_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data: must be a path, a mapping of arrays or a data frame, not list"):
        data_file([1, 2], tmp_path)  # type: ignore[arg-type]


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
