"""Options of the command line that say how to read data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import helper
from PIL import Image

from autoopt.cli.data_options import DataOptions
from autoopt.data.opening import open_data
from autoopt.errors import InputError


def test_without_options_the_path_stays_as_it_is() -> None:
    assert DataOptions().reading().config("x.npz") == "x.npz"
    assert DataOptions().reading().config(None) is None


def test_columns_of_tables_and_arrays() -> None:
    options = DataOptions(label="price", inputs="a, b", classes="low, high")
    columns = {"label_col": "price", "input_cols": ["a", "b"]}
    evaluation = {"path": "x.csv", **columns, "classes": ["low", "high"]}
    assert options.reading().configs("x.csv", "c.csv", None) == (evaluation, {"path": "c.csv", **columns})


def test_arrays_with_other_names_are_given_to_inputs_and_others_left_out(tmp_path: Path) -> None:
    path = str(tmp_path / "d.npz")
    np.savez(path, ids=np.ones((2, 3)), mask=np.zeros((2, 3)), index=np.arange(2), labels=np.arange(2))
    columns = open_data(DataOptions(inputs="input_ids=ids, attention_mask=mask").reading().config(path)).columns
    assert {name: array.sum() for name, array in columns.items()} == {"input_ids": 6, "attention_mask": 0}
    assert set(open_data(DataOptions(ignore="index").reading().config(path)).columns) == {"ids", "mask"}
    with pytest.raises(InputError, match="--inputs: 'ids' is no pair of a new input and a column"):
        DataOptions(inputs="ids,x=mask").reading().config(path)


@pytest.mark.parametrize(
    ("options", "width", "kept"),
    [
        (DataOptions(), 2, [[0.5, 3], [0.7, 3]]),
        (DataOptions(), 3, [[1, 0.5, 3], [2, 0.7, 3]]),
        (DataOptions(), "n", [[0.5, 3], [0.7, 3]]),
        (DataOptions(ignore="a"), 2, [[1, 3], [2, 3]]),
        (DataOptions(inputs="id"), 1, [[1], [2]]),
    ],
)
def test_a_column_that_numbers_the_rows_is_left_out(
    options: DataOptions, width: int | str, kept: list[list[float]], tmp_path: Path
) -> None:
    (tmp_path / "d.csv").write_text("id,a,b,y\n1,0.5,3,0\n2,0.7,3,1\n")
    x = builders.tensor("x", ["items", width])
    model = builders.model([helper.make_node("Identity", ["x"], ["z"])], [x], [builders.tensor("z", None)], {})
    data = open_data(options.reading().config(str(tmp_path / "d.csv")), builders.write(model, tmp_path))
    assert data.columns["input"].tolist() == kept


def test_pixels_are_as_the_file_beside_the_model_says_unless_options_do(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (4, 4), (255, 0, 51)).save(tmp_path / "images" / "1.png")
    stated = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": {"height": 2, "width": 3}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    (tmp_path / "model.onnx").write_bytes(b"")
    values = {}
    for options in (DataOptions(), DataOptions(preprocess="bytes"), DataOptions(preprocess="imagenet")):
        config = options.reading().config(str(tmp_path / "images"), str(tmp_path / "model.onnx"))
        values[options.preprocess] = open_data(config).columns["image"][0]
    assert values[None].shape == (3, 2, 3)
    assert values[None][:, 0, 0] == pytest.approx([1, -1, -0.6])
    assert values["bytes"][:, 0, 0].tolist() == [255, 0, 51]
    assert values["imagenet"][0, 0, 0] == pytest.approx((1 - 0.485) / 0.229)


def test_a_folder_is_one_of_images(tmp_path: Path) -> None:
    options = DataOptions(image_size="224x192", scale=1.0, mean="0.5", std="1,2,3", layout="NHWC")
    params = {"size": [224, 192], "scale": 1.0, "mean": [0.5], "std": [1.0, 2.0, 3.0], "layout": "NHWC"}
    assert options.reading().config(str(tmp_path)) == {
        "path": str(tmp_path),
        "load_dataset": {"type": "images", "params": params},
    }
    labelled: Any = DataOptions(label="labels.csv").reading().config(str(tmp_path))
    assert labelled["load_dataset"]["params"] == {"labels": "labels.csv"}
    assert DataOptions(image_size="64").reading().config(str(tmp_path))["load_dataset"]["params"] == {"size": [64, 64]}  # type: ignore[index]


def test_a_folder_of_wav_files_is_one_of_sounds(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "1.WAV").write_bytes(b"")
    config: Any = DataOptions(label="labels.csv", scale=32768.0, sample_rate=16000).reading().config(str(tmp_path))
    params = {"labels": "labels.csv", "scale": 32768.0, "sample_rate": 16000}
    assert config["load_dataset"] == {"type": "sounds", "params": params}
    for options in (DataOptions(image_size="8"), DataOptions(mean="1"), DataOptions(grayscale=True)):
        with pytest.raises(InputError, match="applies to images, not to WAV files"):
            options.reading().config(str(tmp_path))


def test_a_list_of_images_takes_their_options_and_the_names_of_its_columns(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(b"")
    (tmp_path / "list.csv").write_text("image_path,category,width\n1.png,cat,640\n")
    path = str(tmp_path / "list.csv")
    config: Any = DataOptions(label="category", image_size="8", scale=1.0).reading().config(path)
    assert config == {
        "path": path,
        "label_col": "category",
        "load_dataset": {"type": "images", "params": {"size": [8, 8], "scale": 1.0}},
    }
    assert DataOptions(label="category").reading().config(path) == {"path": path, "label_col": "category"}
    with pytest.raises(InputError, match="--image-size: applies to images"):
        DataOptions(image_size="8", inputs="width").reading().config(path)


def test_values_of_arrays_are_scaled_as_those_of_images() -> None:
    config: Any = DataOptions(scale=0.5, mean="1", std="2").reading().config("x.npz")
    params = config["pre_process"]["params"]
    for value in (0.0, 3.0):
        assert (value - params["mean"][0]) / params["std"][0] == (value * 0.5 - 1) / 2


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        (DataOptions(label="y"), None, "--label: needs --data"),
        (DataOptions(image_size="3x4"), None, "--image-size: needs --data"),
        (DataOptions(layout="NHWC"), __file__, "--layout: applies to images"),
        (DataOptions(sample_rate=8000), ".", "--sample-rate: applies to WAV files"),
        (DataOptions(grayscale=True), "missing/", "missing/: no such data file or folder"),
        (
            DataOptions(image_size="big"),
            ".",
            "--image-size: must be HEIGHTxWIDTH of at most 65535 pixels, not 'big'; write 224x224",
        ),
        (DataOptions(mean="a"), "x.npz", "--mean: must be numbers, not 'a'"),
        (DataOptions(scale=0.0), "x.npz", "--scale: must not be 0"),
    ],
)
def test_mistakes_name_the_option(options: DataOptions, path: str | None, said: str) -> None:
    with pytest.raises(InputError) as refused:
        options.reading().config(path)
    assert str(refused.value).startswith(said)
