"""Labels of files: their folders, or the rows of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoopt.data.sources.file_labels import classes_by_folder, labels_by_name
from autoopt.errors import InputError

ROOT = Path("/data")


def paths(*names: str) -> list[Path]:
    return [ROOT / name for name in names]


def test_folders_are_classes_in_the_order_of_their_names() -> None:
    labels = classes_by_folder(ROOT, paths("dog/1.png", "cat/1.png", "dog/2.png", "ant/big/1.png"))
    assert labels is not None
    assert labels.dtype == np.int64
    assert labels.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize("files", [paths("1.png", "2.png"), paths("cat/1.png", "cat/2.png")], ids=["none", "one"])
def test_one_folder_is_no_class(files: list[Path]) -> None:
    assert classes_by_folder(ROOT, files) is None


def test_files_beside_folders_are_a_class_of_their_own() -> None:
    labels = classes_by_folder(ROOT, paths("1.png", "cat/1.png"))
    assert labels is not None
    assert labels.tolist() == [0, 1]


def test_rows_are_found_by_the_path_below_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text('name,label\nb/1.png,7\n"a,b.png","two, words"\na.png,3,ignored\nlonely\n\n', encoding="utf-8")
    names = paths("a.png", "b/1.png", "a,b.png")
    assert labels_by_name(ROOT, names, str(file)) == ["3", "7", "two, words"]


def test_the_last_row_of_a_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("a.png,1\na.png,2\n")
    assert labels_by_name(ROOT, paths("a.png"), str(file)) == ["2"]


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


def test_a_byte_order_mark_belongs_to_no_name(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("\ufeffa.png,3\n", encoding="utf-8")
    assert labels_by_name(ROOT, paths("a.png"), str(file)) == ["3"]
