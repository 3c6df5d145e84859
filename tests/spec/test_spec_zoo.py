"""zoo.yaml as a value, and the models it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.errors import ConfigError
from autoopt.spec.zoo import load_zoo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.onnx", "b.onnx", "deep/model.onnx", "deep/readme.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    return tmp_path


def zoo(folder: Path, models: str) -> Any:
    file = folder / "zoo.yaml"
    file.write_text(f"name: z\nmodels:\n{models}")
    return load_zoo(file)


def test_files_folders_globs_and_addresses(folder: Path) -> None:
    made = zoo(
        folder,
        "  - a.onnx\n  - {path: deep, tags: [cnn]}\n  - {path: '*.onnx', tags: [x]}\n"
        "  - {path: 's3://b/m.onnx', name: far, data: {evaluation: e.npz}, search: {trials: 3}}\n",
    )
    entries = made.entries()
    assert [e.name for e in entries] == ["a", "deep", "b", "far"]
    assert [e.path for e in entries[:3]] == [str(folder / n) for n in ("a.onnx", "deep/model.onnx", "b.onnx")]
    assert entries[3].path == "s3://b/m.onnx"
    assert entries[3].spec.search == {"trials": 3}
    assert [e.name for e in made.entries(tag="cnn")] == ["deep"]


def test_a_model_listed_by_itself_is_not_the_folders_or_globs(folder: Path) -> None:
    made = zoo(folder, "  - '*.onnx'\n  - {path: a.onnx, dag: own.yaml, name: x}\n  - {path: a.onnx, dag: b.yaml}\n")
    assert [(e.name, e.spec.dag) for e in made.entries()] == [("b", None), ("x", "own.yaml"), ("a", "b.yaml")]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("zip://far/model.onnx::s3://b/all.zip", "far"),
        ("simplecache::s3://b/net.onnx", "net"),
        ("https://host/net.onnx?signature=abc/def", "net"),
        ("s3://b/some.tar.gz", "some"),
        ("https://me:secret@host/model.onnx", "host"),
        ("https://me:secret@host", "host"),
        ("https://secret@host/a@2.onnx", "a@2"),
        ("https://me:se@cret/w:rd#1@host/model.onnx", "model"),
    ],
)
def test_the_name_of_what_lies_behind_an_address(folder: Path, path: str, name: str) -> None:
    assert [e.name for e in zoo(folder, f"  - '{path}'\n").entries()] == [name]


@pytest.mark.parametrize(
    ("models", "line", "reason"),
    [
        ("  - {pth: a.onnx}\n", 3, "models[0].pth: unknown field; did you mean 'path'?"),
        ("  - {path: a.onnx, search: {trails: 3}}\n", 3, "search.trails: unknown field; did you mean 'trials'?"),
        ("  - {path: a.onnx, name: m}\n  - {path: b.onnx, name: m}\n", 4, "is the name of another model"),
        ("  - {path: a.onnx, constraints: [{metric: accuracy}]}\n", 3, "needs a bound"),
        ("  []\n", 2, "models: is empty"),
    ],
)
def test_mistakes_are_told_with_their_line(folder: Path, models: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        zoo(folder, models)
    assert caught.value.line == line
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"), [("nope.onnx", "no such file"), ("n*pe.onnx", "no models in"), ("empty", "no models")]
)
def test_models_that_are_not_there(folder: Path, path: str, reason: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match=f"zoo.yaml:3: models.0..*{reason}"):
        zoo(folder, f"  - '{path}'\n").entries()
    there, missing = zoo(folder, f"  - a.onnx\n  - '{path}'\n").entries()
    assert (there.name, there.reason) == ("a", "")
    assert "zoo.yaml:4: models[1].path: " in missing.reason
    assert reason in missing.reason


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "../up"])
def test_a_name_is_no_way_out_of_the_folder_of_results(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"zoo\.yaml:3: .*is not a valid name"):
        zoo(folder, f"  - {{path: a.onnx, name: '{name}'}}\n")


@pytest.mark.parametrize(
    "path", ["s3://b/x/../model.onnx", "s3://b/...onnx", "s3://b/./model.onnx", "s3://b/" + "x" * 999]
)
def test_nor_is_the_name_of_a_file(folder: Path, path: str) -> None:
    (entry,) = zoo(folder, f"  - {{path: '{path}'}}\n").entries()
    assert entry.name.strip(".")
    assert len(entry.name) <= 128


def test_a_huge_name_is_not_repeated(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is longer than 128 characters") as error:
        zoo(folder, f"  - {{path: a.onnx, name: {'x' * 300_000}}}\n")
    assert len(str(error.value)) < 500


def test_the_folder_of_a_zoo_is_no_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "work [1] *"
    (folder / "cnn").mkdir(parents=True)
    (folder / "cnn" / "model.onnx").touch()
    (folder / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels: ['*/model.onnx']\n")
    assert [entry.path for entry in load_zoo(folder / "zoo.yaml").entries()] == [str(folder / "cnn" / "model.onnx")]
