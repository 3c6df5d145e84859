"""Labels of files: their folders, or the rows of a file, which may list the files too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoopt.data.files import IMAGES, LabelledFiles, classes_by_folder, find_files, labels_by_name
from autoopt.errors import InputError

ROOT = Path("/data")


def paths(*names: str) -> list[Path]:
    return [ROOT / name for name in names]


def test_folders_are_classes_in_the_order_of_their_names() -> None:
    names, labels = classes_by_folder(ROOT, paths("dog/1.png", "cat/1.png", "dog/2.png", "ant/big/1.png"))
    assert names == ("ant/big", "cat", "dog")
    assert labels.dtype == np.int64
    assert labels.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize("folder", ["", "cat"], ids=["none", "one"])
def test_one_folder_is_no_class(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for name in ("1.png", "2.png"):
        (tmp_path / folder / name).touch()
    assert find_files(str(tmp_path), IMAGES).classes is None


def test_files_beside_folders_are_a_class_of_their_own() -> None:
    _, labels = classes_by_folder(ROOT, paths("1.png", "cat/1.png"))
    assert labels.tolist() == [0, 1]


def test_rows_are_found_by_the_path_below_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(
        '\ufeffa.png,1\nname,label\nb/1.png,7\n"a,b.png","two, words"\na.png,3,ignored\nlonely\n\n', encoding="utf-8"
    )
    names = paths("a.png", "b/1.png", "a,b.png")
    assert labels_by_name(ROOT, names, str(file)) == ["3", "7", "two, words"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a.png,1\n", "no label for b.png"), (b"\xff\xfe", "not readable as labels"), (None, "not readable as labels")],
)
def test_labels_that_are_missing_or_unreadable_are_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "labels.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        labels_by_name(ROOT, paths("a.png", "b.png"), str(file))
    assert str(error.value).startswith(str(file))


def test_rows_may_name_files_from_the_folder_of_the_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("images/a.png,3\n")
    files = [tmp_path / "images" / "a.png"]
    assert labels_by_name(tmp_path / "images", files, str(tmp_path / "labels.csv")) == ["3"]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in ("b", "a"):
        (tmp_path / "images" / f"{name}.png").touch()
    return tmp_path


def listed(folder: Path, text: str, **options: Any) -> LabelledFiles:
    (folder / "list.csv").write_text(text)
    return find_files(str(folder / "list.csv"), IMAGES, **options)


@pytest.mark.parametrize(
    ("header", "options", "labels"),
    [
        ("path,label,width", {}, ["cat", "dog"]),
        ("path,kind", {}, ["cat", "dog"]),
        ("path,kind,width", {"label_col": "kind"}, ["cat", "dog"]),
        ("path,kind,width", {}, None),
        ("path", {}, None),
    ],
    ids=["named", "the only other", "chosen", "none", "no other"],
)
def test_a_list_names_files_in_its_order_and_their_labels(
    images: Path, header: str, options: dict[str, Any], labels: list[str] | None
) -> None:
    columns = header.count(",") + 1
    rows = [["images/b.png", "cat", "640"], ["images/a.png", "dog", "480"]]
    text = "\n".join([header, *(",".join(row[:columns]) for row in rows)])
    found = listed(images, text, **options)
    assert [file.name for file in found.files] == ["b.png", "a.png"]
    assert found.texts == labels
    assert ("by the option label" in found.reading) == (labels is None and columns > 1)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("path,label\nimages/b.png,1\nimages/c.png,2\n", {}, r"list.csv:3: no such file: images/c.png"),
        ("images/b.png,1\nimages/a.png,2\n", {}, "lists files without a header; begin it with a line: file,label"),
        ("path,label\nimages/b.png,1\n", {"label_col": "lable"}, "no column 'lable'; did you mean 'label'"),
        ("path,label\nimages/b.png,1\n", {"labels": "other.csv"}, "labels applies to a folder"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(images: Path, text: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        listed(images, text, **options)


def test_columns_are_not_those_of_a_folder(images: Path) -> None:
    with pytest.raises(InputError, match="label_col and input_cols apply to a table"):
        find_files(str(images), IMAGES, label_col="label")
