"""Folders of images."""

from __future__ import annotations

import os

import pytest

from autoopt.data.opening import open_data
from autoopt.errors import InputError


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 16}, r"size must be \[height, width\], not 16"),
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers for 3 channels"),
        ({"std": [0.5, 0.5], "mode": "L"}, "std has 2 numbers for 1 channels"),
    ],
)
def test_options_that_do_not_fit_the_images_are_named(tmp_path, params, words):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=words):
        open_data({"path": str(tmp_path), "load_dataset": {"type": "images", "params": params}})


def test_classes_come_from_folders_or_a_file_of_labels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat/1.png", (255, 0, 0)), ("dog/2.png", (0, 0, 255))):
        (tmp_path / "set" / name).parent.mkdir(parents=True)
        image.new("RGB", (4, 6), colour).save(tmp_path / "set" / name)
    data = open_data(str(tmp_path / "set"))
    assert data.columns["image"].shape == (2, 3, 6, 4)
    assert data.columns["image"][0, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert data.labels.tolist() == [0, 1]
    (tmp_path / "labels.csv").write_text("cat/1.png,7\ndog/2.png,3\n")
    params = {"labels": str(tmp_path / "labels.csv"), "size": [2, 2], "layout": "NHWC", "mean": [0.5, 0.5, 0.5]}
    other = open_data({"path": str(tmp_path / "set"), "load_dataset": {"type": "images", "params": params}})
    assert other.labels.tolist() == [7, 3]
    assert other.columns["image"].shape == (2, 2, 2, 3)
    assert other.columns["image"][0, 0, 0].tolist() == [0.5, -0.5, -0.5]


def test_a_table_may_list_the_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("1.png", (255, 0, 0)), ("2.jpg", (0, 0, 255))):
        image.new("RGB", (4, 6), colour).save(tmp_path / name)
    (tmp_path / "list.csv").write_text("image_path,category,width\n2.jpg,cat,4\n1.png,dog,4\n2.jpg,ant,4\n")
    data = open_data({"path": str(tmp_path / "list.csv"), "label_col": "category", "limit": 2})
    assert data.columns["image"].shape == (2, 3, 6, 4)
    assert data.columns["image"][1, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert data.labels.tolist() == [1, 2]
    widths = open_data({"path": str(tmp_path / "list.csv"), "label_col": "category", "input_cols": ["width"]})
    assert widths.columns["input"].shape == (3, 1)


def test_only_the_formats_of_the_suffixes_are_opened_and_only_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (4, 4)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    assert len(open_data(str(tmp_path))) == 1
    image.new("L", (4, 4)).save(tmp_path / "c.png", "eps")  # Ghostscript would run it
    with pytest.raises(InputError, match=r"c\.png: not a readable image"):
        open_data(str(tmp_path))


def test_an_image_of_a_billion_pixels_is_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (1, 1)).save(tmp_path / "a.bmp")
    content = bytearray((tmp_path / "a.bmp").read_bytes())
    content[18:26] = (30_000).to_bytes(4, "little") * 2
    (tmp_path / "a.bmp").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.bmp: not a readable image \(Image size"):
        open_data(str(tmp_path))
