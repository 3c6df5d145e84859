"""Composed data configs: steps, sampling, components of a user script."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.data import DataConfig, open_data
from autoopt.data.opening import post_processor
from autoopt.errors import InputError

X = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, extra=X + 1, labels=np.arange(20))
    return str(tmp_path / "d.npz")


def opened(path, **config):
    return open_data({"path": path, **config})


def step(name, **params):
    return {"type": name, "params": params}


def test_steps_change_what_they_say(path):
    assert list(opened(path, pre_process=step("select", columns=["x"])).columns) == ["x"]
    assert set(opened(path, pre_process=step("rename", columns={"x": "z"})).columns) == {"z", "extra"}
    assert opened(path, pre_process=step("cast", dtype="int64", columns=["x"])).columns["x"].dtype == np.int64
    scaled = opened(path, pre_process=step("normalize", mean=[1, 2, 3], std=2.0, columns=["x"])).columns["x"]
    np.testing.assert_allclose(scaled, (X - [1, 2, 3]) / 2)
    assert opened(path, pre_process=step("reshape", shape=[1, 3])).columns["x"].shape == (20, 1, 3)


def test_samples_are_spread_and_a_limit_takes_the_first(path):
    assert opened(path, sample_ratio=0.25).labels.tolist() == [0, 5, 10, 14, 19]
    assert opened(path, limit=3).labels.tolist() == [0, 1, 2]
    shuffled = opened(path, dataloader=step("shuffle", seed=1)).labels
    assert sorted(shuffled) == list(range(20))
    assert shuffled.tolist() != list(range(20))
    assert opened(path, dataloader=step("first", count=2)).labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pre_process": step("selct", columns=[])}, "did you mean 'select'"),
        ({"pre_process": step("select", colums=["x"])}, "select"),
        ({"pre_process": step("select", columns=["y"])}, "no column 'y'"),
        ({"load_dataset": step("npzz")}, "did you mean 'npz'"),
        ({"pre_process": step("cast", dtype="flaot32")}, "data component 'cast': TypeError"),
        ({"pre_process": step("reshape", shape=[5])}, "data component 'reshape': ValueError"),
    ],
)
def test_mistakes_are_named(path, config, words):
    with pytest.raises(InputError, match=words):
        opened(path, **config)


def test_post_processing_makes_predictions(path):
    outputs = [np.array([[0.0, 2.0], [3.0, 1.0]])]
    made = {
        n: post_processor(DataConfig.parse({"path": path, "post_process": n})) for n in ("argmax", "softmax", "sigmoid")
    }
    assert made["argmax"](outputs).tolist() == [1, 0]
    assert made["softmax"](outputs).sum(axis=1) == pytest.approx([1, 1])
    assert made["sigmoid"](outputs)[0, 0] == 0.5
    assert post_processor(DataConfig.parse(path)) is None


SCRIPT = """
import numpy as np
from autoopt.data import register_dataloader, register_load_dataset, register_post_process, register_pre_process

@register_load_dataset("squares")
def squares(count):
    numbers = np.arange(count, dtype=np.float32)
    return {"x": numbers.reshape(-1, 1)}, numbers ** 2

@register_pre_process("twice")
def twice(data):
    return {"x": data.columns["x"] * 2, "labels": data.labels}

@register_dataloader("backwards")
def backwards(data):
    return data.take(np.arange(len(data))[::-1])

@register_post_process("sum")
def total(outputs):
    return outputs[0].sum(axis=-1)
"""


def test_components_of_a_user_script(tmp_path):
    script = tmp_path / "components.py"
    script.write_text(SCRIPT)
    config = {
        "user_script": str(script),
        "load_dataset": step("squares", count=4),
        "pre_process": "twice",
        "dataloader": "backwards",
        "post_process": "sum",
    }
    data = open_data(config)
    assert data.columns["x"].ravel().tolist() == [6, 4, 2, 0]
    assert data.labels.tolist() == [9, 4, 1, 0]
    assert post_processor(DataConfig.parse(config))([np.ones((2, 3))]).tolist() == [3, 3]
    script.write_text("def broken(:\n")
    with pytest.raises(InputError, match="SyntaxError"):
        open_data(config)
