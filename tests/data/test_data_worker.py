"""Descriptions of data sets."""

from __future__ import annotations

import builders
import numpy as np
import pytest

from autoopt.data.worker import _label_text, describe
from autoopt.errors import InputError
from autoopt.model import io

X = np.arange(24, dtype=np.float32).reshape(6, 4)


Y = np.array([0, 1, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", Y),
        ("class", np.eye(3)[Y]),
        ("class", np.stack([Y, Y], 1)),
        ("value", Y.astype(np.float32)),
        ("tensor", X),
        ("tensor", X.astype(np.uint8)),
        (None, None),
    ],
)
def test_a_description_has_the_kind_of_labels(tmp_path, kind, labels):
    np.savez(tmp_path / "d.npz", x=X, **({} if labels is None else {"labels": labels}))
    found = describe({"data": str(tmp_path / "d.npz")})
    assert (found["items"], found["label_kind"], found["labels"]) == (6, kind, labels is not None)
    assert found["columns"] == {"x": {"dtype": "float32", "shape": [6, 4], "finite": True}}


@pytest.mark.parametrize(
    ("labels", "text"), [(["3", "x7"], "x7"), (["1", "2.5"], None), ([1, 2], None), ([None, "cat"], "None")]
)
def test_a_label_that_is_text_is_shown(labels, text):
    assert _label_text(np.array(labels, object) if not isinstance(labels[0], int) else np.array(labels)) == text


def test_values_that_are_not_finite_are_reported(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([1.0, np.nan]), n=np.array([1, 2]))
    columns = describe({"data": str(tmp_path / "d.npz")})["columns"]
    assert (columns["x"]["finite"], columns["n"]["finite"]) == (False, True)


def test_items_of_different_shapes_are_described_by_the_first(tmp_path):
    path = str(io.save(builders.mlp(), tmp_path))
    found = describe({"data": {"load_dataset": {"type": "synthetic", "params": {"items": 3}}}, "model": path})
    assert found == {
        "items": 3,
        "columns": {"x": {"dtype": "float32", "shape": [1, 8]}},
        "labels": False,
        "label_kind": None,
        "label_text": None,
    }


def test_unreadable_data_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such data file"):
        describe({"data": str(tmp_path / "gone.npz")})
