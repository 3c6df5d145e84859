"""Composed data configs: choice of loaders and items, components of a user script."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from steps_data import opened, step

from autoopt.data import DataConfig
from autoopt.data.dataset import DataSet
from autoopt.data.opening import next_tokens, open_data, post_processor
from autoopt.errors import InputError

TEXT = np.array([[5, 6, 7, 8], [1, 2, 3, 4]])
AFTER = [[6, 7, 8, -100], [2, 3, 4, -100]]


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet", "xyz"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"bad.{suffix}"
    path.write_bytes(b"\x93 rubbish")
    with pytest.raises(InputError) as caught:
        open_data(str(path))
    assert "\n" not in str(caught.value)


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

@register_dataloader("last of class")
def last_of_class(data):
    return data.take(np.flatnonzero(np.diff(data.labels, append=-1)))

@register_post_process("sum")
def total(outputs):
    return outputs[0].sum(axis=-1)
"""


def test_samples_are_spread_and_a_limit_takes_the_first(path):
    assert opened(path, sample_ratio=0.25).labels.tolist() == [0, 5, 10, 14, 19]
    assert opened(path, limit=3).labels.tolist() == [0, 1, 2]
    shuffled = opened(path, dataloader=step("shuffle", seed=1)).labels
    assert sorted(shuffled) == list(range(20))
    assert shuffled.tolist() != list(range(20))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pre_process": step("csat", dtype="int64")}, "did you mean 'cast'"),
        ({"pre_process": step("cast", dtype="int64", colums=["x"])}, "cast"),
        ({"pre_process": step("cast", dtype="int64", columns=["y"])}, "no column 'y'"),
        ({"load_dataset": step("npzz")}, "did you mean 'npz'"),
        ({"pre_process": step("cast", dtype="flaot32")}, "data component 'cast': TypeError"),
        ({"pre_process": step("reshape", shape=[5])}, "data component 'reshape': ValueError"),
    ],
)
def test_mistakes_in_components_are_named(path, config, words):
    with pytest.raises(InputError, match=words):
        opened(path, **config)


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({"limit": 2}, [0, 1]),
        ({"sample_ratio": 0.5}, [0, 2, 5]),
        ({"dataloader": step("shuffle", seed=1), "limit": 3}, np.random.default_rng(1).permutation(6)[:3].tolist()),
    ],
)
def test_only_the_chosen_items_are_read(tmp_path, chosen, numbers):
    image = pytest.importorskip("PIL.Image")
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    for number in range(6):
        file = tmp_path / "images" / "ab"[number // 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        folder = tmp_path / "tensors" / f"test_data_set_{number}"
        folder.mkdir(parents=True)
        if number in numbers:
            image.new("L", (1, 1), number).save(file)
            tensor = numpy_helper.from_array(np.full((1, 1), number, np.float32), "x")
            (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
        else:
            file.write_bytes(b"no image")
            (folder / "input_0.pb").write_bytes(b"no tensor")
    grey = step("images", mode="L", scale=1)
    images = open_data({"path": str(tmp_path / "images"), "load_dataset": grey, **chosen})
    assert images.columns["image"].ravel().tolist() == numbers
    assert images.labels.tolist() == [number // 3 for number in numbers]
    tensors = open_data({"path": str(tmp_path / "tensors"), **chosen})
    assert np.ravel(tensors.uneven["x"]).tolist() == numbers
    parquet.write_table(pyarrow.table({"x": range(6)}), tmp_path / "x.parquet")
    (tmp_path / "x.txt").write_text("\n".join(map(str, range(6))))
    for name, column in (("x.parquet", "input"), ("x.txt", "text")):
        found = open_data({"path": str(tmp_path / name), **chosen}).columns[column]
        assert [int(item) for item in found.ravel()] == numbers
    with pytest.raises(InputError, match="not a readable image"):
        open_data({"path": str(tmp_path / "images"), "load_dataset": grey})


def test_a_user_script_provides_components(tmp_path):
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
    image = pytest.importorskip("PIL.Image")
    for number in range(6):
        file = tmp_path / "images" / "ab"[number // 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.new("L", (1, 1), number).save(file)
    by_class = {"path": str(tmp_path / "images"), "user_script": str(script), "dataloader": "last of class", "limit": 1}
    read = open_data({**by_class, "load_dataset": step("images", mode="L", scale=1)})
    assert read.columns["image"].ravel().tolist() == [2]
    script.write_text("def broken(:\n")
    with pytest.raises(InputError, match="SyntaxError"):
        open_data(config)


def test_the_label_of_tokens_is_the_next_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "text.npz", input_ids=np.array([[5, 6, 7], [1, 2, 3]]))
    data = open_data({"path": str(tmp_path / "text.npz"), "label_col": "input_ids"})
    assert data.labels.tolist() == [[6, 7, -100], [2, 3, -100]]
    assert data.columns["input_ids"].tolist() == [[5, 6, 7], [1, 2, 3]]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (TEXT, AFTER),
        ([[5, 6, -100, -100], [1, 2, 3, 4]], [[6, -100, -100, -100], [2, 3, 4, -100]]),
        (AFTER, AFTER),
        ([[6, 7, 8, 9], [2, 3, 4, 5]], [[6, 7, 8, 9], [2, 3, 4, 5]]),
        ([[0, 1, 0, 1], [1, 1, 0, 0]], None),
        ([0, 1], None),
    ],
    ids=["repeated", "repeated and padded", "next", "next with the last", "classes of tokens", "classes of texts"],
)
def test_labels_of_a_language_model_are_the_next_tokens(labels: object, expected: object) -> None:
    after = next_tokens(DataSet({"input_ids": TEXT}, np.array(labels)))
    assert (None if after is None else after.tolist()) == expected


def test_labels_of_other_inputs_are_never_next_tokens() -> None:
    assert next_tokens(DataSet({"x": TEXT}, TEXT)) is None
    assert next_tokens(DataSet({"input_ids": TEXT})) is None


@pytest.mark.parametrize("labels", [["cat", "ant", "cat"], [7, 3, 7]])
def test_classes_give_the_order_of_the_models_outputs(tmp_path: Path, labels: list[object]) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)), labels=np.array(labels))
    first, second = map(str, labels[:2])
    data = opened(str(tmp_path / "d.npz"), classes=["other", first, second])
    assert data.labels.tolist() == [1, 2, 1]
    assert data.classes == ("other", first, second)
    with pytest.raises(InputError, match=f"classes: label '{second}' of the data is missing; name each class once"):
        opened(str(tmp_path / "d.npz"), classes=[first])
    with pytest.raises(InputError, match="classes: a name is there twice"):
        opened(str(tmp_path / "d.npz"), classes=[first, second, first])


def test_classes_need_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)))
    with pytest.raises(InputError, match="classes: needs labels in the data"):
        opened(str(tmp_path / "d.npz"), classes=["a", "b"])
