"""Descriptions of data sets."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.data.worker import describe

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
