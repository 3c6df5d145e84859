"""The stored inputs of one inference."""

from __future__ import annotations

import builders
import numpy as np
import pytest
from measure_helpers import QUICK

from autoopt.errors import InputError
from autoopt.measure.inference import ModelRunner
from autoopt.measure.stored_inputs import store_inputs
from autoopt.model import io


def ask(tmp_path, model, **request):
    path = str(io.save(model, tmp_path / "model"))
    document = {"candidate": {"path": path}, "settings": QUICK, **request}
    reply = store_inputs({"request": document, "path": str(tmp_path / "inputs.npz")})
    return reply, np.load(tmp_path / "inputs.npz")


def test_they_are_the_first_batch_of_the_data(tmp_path):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items, labels=np.zeros(10))
    data = {"path": str(tmp_path / "data.npz")}
    reply, arrays = ask(tmp_path, builders.mlp(), data=data, settings={**QUICK, "batch_size": 2})
    assert reply == {"batch_size": 2, "licence": ""}
    assert arrays.files == ["x"]
    assert np.array_equal(arrays["x"], items[:2])


def test_without_data_they_are_generated(tmp_path):
    _, arrays = ask(tmp_path, builders.mlp())
    assert arrays["x"].shape == (1, 8)


def test_single_items_are_found_without_a_session(tmp_path, monkeypatch):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items)
    data = {"path": str(tmp_path / "data.npz")}
    monkeypatch.setattr(ModelRunner, "open", None)
    reply, arrays = ask(tmp_path, builders.mlp(), data=data)
    assert reply["batch_size"] == 1
    assert np.array_equal(arrays["x"], items[:1])


def test_a_batch_of_the_data_is_tried_on_the_model(tmp_path):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items)
    reply, arrays = ask(tmp_path, builders.mlp(), data={"path": str(tmp_path / "data.npz"), "batch_size": 5})
    assert (reply["batch_size"], len(arrays["x"])) == (5, 5)


def test_with_profiles_they_are_those_of_the_first(tmp_path):
    profiles = [{"dimensions": {"batch": 3}}, {"dimensions": {"batch": 5}}]
    _, arrays = ask(tmp_path, builders.mlp(), settings={**QUICK, "profiles": profiles})
    assert len(arrays["x"]) in (1, 3)


def test_the_licence_of_the_model_is_read(tmp_path):
    model = builders.mlp()
    model.metadata_props.add(key="License", value="Apache-2.0")
    assert ask(tmp_path, model)[0]["licence"] == "Apache-2.0"


def test_data_that_cannot_be_read_are_the_users_error(tmp_path):
    with pytest.raises(InputError):
        ask(tmp_path, builders.mlp(), data={"path": str(tmp_path / "none.npz")})
