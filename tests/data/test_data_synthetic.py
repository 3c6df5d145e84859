"""Items made from a model's inputs."""

from __future__ import annotations

import builders
import numpy as np
from onnx import TensorProto, helper

from autoopt.data import open_data
from autoopt.model import io


def embedding_model():
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["y"]),
    ]
    ids = builders.tensor("ids", ["batch", "seq"], TensorProto.INT32)
    flag = builders.tensor("flag", [], TensorProto.BOOL)
    return builders.model(nodes, [ids, flag], [builders.tensor("y", ["batch", "seq", 2])], {"table": np.ones((5, 2))})


def test_items_suit_the_inputs_of_the_model(tmp_path):
    path = str(io.save(embedding_model(), tmp_path))
    load = {"type": "synthetic", "params": {"items": 50, "dimensions": {"seq": 7}}}
    data = open_data({"load_dataset": load}, model=path)
    assert len(data) == 50
    ids = np.stack(data.uneven["ids"])
    assert ids.shape == (50, 1, 7)
    assert ids.dtype == np.int32
    assert set(np.unique(ids)) == set(range(5))
    assert data.uneven["flag"][0].shape == ()
    again = open_data({"load_dataset": load}, model=path)
    np.testing.assert_array_equal(np.stack(again.uneven["ids"]), ids)
    other = {"type": "synthetic", "params": {"shapes": {"ids": [2, 3]}, "ranges": {"ids": [1, 2]}, "seed": 5}}
    limited = np.stack(open_data({"load_dataset": other}, model=path).uneven["ids"])
    assert limited.shape[1:] == (2, 3)
    assert set(np.unique(limited)) == {1, 2}
