"""CSV files: their columns, and lists of images or sounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.data.csv_files import listed_files, loader_of_list, read_columns
from autoopt.errors import InputError


@pytest.mark.parametrize(("separator", "suffix"), [(",", "csv"), (";", "csv"), ("\t", "csv"), ("\t", "tsv")])
def test_the_header_shows_the_separator(tmp_path: Path, separator: str, suffix: str) -> None:
    file = tmp_path / f"table.{suffix}"
    file.write_text(f"a{separator} b\n1{separator}2\n")
    assert read_columns(str(file)) == (separator, {"a": ("1",), "b": ("2",)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n", "has no rows below its header"),
        ("a,a\n1,2\n", "has several columns named 'a'"),
        ("a,b\n1\n", "line 2 has 1 fields separated by ',', the header 2"),
    ],
)
def test_tables_without_a_meaning_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_columns(str(tmp_path / "table.csv"))


@pytest.mark.parametrize(
    ("text", "inputs", "loader"),
    [
        ("file,label\na.PNG,1\n", None, "images"),
        ("label,file\n1,a.wav\n", None, "sounds"),
        ("a.PNG,1\n", None, "images"),
        ("file,mean,label\na.wav,0.5,1\n", ["mean"], None),
        ("file,label\nmissing.png,1\n", None, None),
        ("a,label\n1,1\n", None, None),
        ("", None, None),
    ],
    ids=["images", "sounds", "no header", "features chosen", "missing", "table", "empty"],
)
def test_a_list_names_files_that_are_there(
    tmp_path: Path, text: str, inputs: list[str] | None, loader: str | None
) -> None:
    for name in ("a.PNG", "a.wav"):
        (tmp_path / name).touch()
    (tmp_path / "list.csv").write_text(text)
    assert loader_of_list(tmp_path / "list.csv", inputs) == loader


def test_only_existing_images_and_sounds_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "list.csv").write_text("image,notes\na.png,notes.txt\nb.png,notes.txt\na.png,\n")
    assert listed_files(tmp_path / "list.csv") == [tmp_path / "a.png"] * 2
    assert listed_files(tmp_path / "notes.txt") == []
