"""numpy files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from autoopt.data import open_data
from autoopt.errors import InputError

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
        with pytest.raises(InputError):
            open_data(str(tmp_path / name))
    assert not trap.exists()
