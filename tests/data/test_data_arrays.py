"""numpy files."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoopt.data.opening import open_data
from autoopt.data.sources.arrays import load_npz
from autoopt.errors import InputError
from autoopt.model import io

X = np.arange(24, dtype=np.float32).reshape(6, 4)


Y = np.array([0, 1, 0, 1, 2, 2])


def test_an_npz_file_has_items_labels_and_values_for_all_items(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, threshold=np.float32(0.5), labels=Y)
    data = open_data(str(tmp_path / "d.npz"))
    batches = list(data.feeds(4))
    assert [len(labels) for _, labels in batches] == [4, 2]
    assert batches[0][0]["threshold"].shape == ()
    np.testing.assert_array_equal(np.concatenate([f["x"] for f, _ in batches]), X)
    assert len(list(data.feeds(2, limit=3))) == 2


def test_an_npy_file_is_the_only_input(tmp_path):
    np.save(tmp_path / "d.npy", X)
    np.save(tmp_path / "y.npy", Y)
    load = {"type": "npy", "params": {"labels": str(tmp_path / "y.npy")}}
    data = open_data({"path": str(tmp_path / "d.npy"), "load_dataset": load})
    assert list(data.columns) == ["d"]
    np.testing.assert_array_equal(data.labels, Y)


def test_a_file_that_is_no_array_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InputError, match=r"d\.npz: holds a file that is no array: 'notes.txt'"):
        open_data(str(tmp_path / "d.npz"))


def test_pickles_are_never_opened(tmp_path):
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return (open, (str(trap), "w"))

    np.save(tmp_path / "d.npy", np.array([Trap()], object), allow_pickle=True)
    np.savez(tmp_path / "d.npz", x=np.array([Trap()], object))
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Trap()))
    trap.unlink(missing_ok=True)
    for name in ("d.npy", "d.npz", "plain.npy"):
        with pytest.raises(InputError, match="holds Python objects"):
            open_data(str(tmp_path / name))
    assert not trap.exists()


@pytest.mark.parametrize("name", ["labels", "label", "y", "Target", "targets"])
def test_labels_are_found_by_their_usual_names(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3)), **{name: np.array([1, 0])})
    data = load_npz(str(tmp_path / "d.npz"))
    assert list(data.columns) == ["x"]
    assert data.labels.tolist() == [1, 0]


def test_of_several_possible_labels_one_has_to_be_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3)), y=np.array([1, 0]), target=np.array([0, 1]))
    with pytest.raises(InputError, match="'y' and 'target' may both be the labels; name one: --label y"):
        load_npz(str(tmp_path / "d.npz"))
    data = load_npz(str(tmp_path / "d.npz"), label_col="target", input_cols=["x"])
    assert (list(data.columns), data.labels is not None and data.labels.tolist()) == (["x"], [0, 1])


def test_an_input_of_the_model_is_no_label(tmp_path: Path) -> None:
    inputs = [builders.tensor("x", ["n", 2]), builders.tensor("y", ["n", 2])]
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    model = io.save(builders.model(nodes, inputs, [builders.tensor("z", ["n", 2])], {}), tmp_path)
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)), y=np.zeros((3, 2)))
    data = open_data(str(tmp_path / "d.npz"), model)
    assert (list(data.columns), data.labels) == (["x", "y"], None)


def test_data_sets_are_items_in_numeric_order(tmp_path):
    for number in (10, 2):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for kind, value in (("input_0", [number, 1.0]), ("output_0", [float(number)])):
            tensor = numpy_helper.from_array(np.array([value], np.float32), "x" if kind == "input_0" else "y")
            (folder / f"{kind}.pb").write_bytes(tensor.SerializeToString())
    data = open_data(str(tmp_path))
    assert [float(feed["x"][0, 0]) for feed, _ in data.feeds()] == [2.0, 10.0]
    labelled = open_data(
        {"path": str(tmp_path), "load_dataset": {"type": "onnx_test_data", "params": {"labels": True}}}
    )
    assert labelled.labels.ravel().tolist() == [2.0, 10.0]


def test_data_refers_to_no_other_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    tensor = TensorProto(name="x", data_type=1, dims=[1, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret.bin")
    (tmp_path / "input_0.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(InputError, match="refers to another file"):
        open_data(str(tmp_path))
