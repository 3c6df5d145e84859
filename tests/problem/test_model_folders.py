"""Models from folders and archives: several that belong together, or a single one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import mlp, write

from autoopt.errors import ConfigError, InputError
from autoopt.problem.model_folders import models_of, read_models, with_models
from autoopt.problem.plans import make_plans
from autoopt.problem.run_request import RunRequest
from autoopt.spec import load_dag

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two models, each in a folder of its name."""
    for name in ("front", "back"):
        write(mlp(), tmp_path / "set" / name)
    return tmp_path / "set"


def dag_file(tmp_path: Path, model: str, more: str = "") -> Path:
    file = tmp_path / "d.yaml"
    file.write_text(f"name: d\nmodel: {model}\n{more}passes: {{tidy: simplify}}\nchains: [[tidy]]\n")
    return file


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_models_of_an_archive_are_those_of_its_folder(tmp_path: Path, folder: Path, kind: str, whole: bool) -> None:
    base = folder.name if whole else None
    archive = shutil.make_archive(str(tmp_path / "all"), kind, tmp_path if whole else folder, base)
    models = models_of(archive, tmp_path / "home")
    assert list(models) == list(models_of(str(folder), tmp_path)) == ["back", "front"]
    for name, path in models.items():
        assert Path(path).read_bytes() == (folder / name / "model.onnx").read_bytes()


def test_an_archive_on_the_command_line_is_a_set_or_a_single_model(tmp_path: Path, folder: Path) -> None:
    first, parts = read_models([shutil.make_archive(str(tmp_path / "all"), "zip", folder)], tmp_path / "home")
    assert (list(parts), first) == (["back", "front"], parts["back"])
    single = shutil.make_archive(str(tmp_path / "one"), "zip", folder / "back")
    first, parts = read_models([single], tmp_path / "home")
    assert (Path(first).name, parts) == ("model.onnx", {})


def test_a_dag_names_a_folder_or_an_archive_of_models(tmp_path: Path, folder: Path) -> None:
    shutil.make_archive(str(tmp_path / "all"), "zip", folder)
    for model in ("set", "all.zip"):
        file = dag_file(tmp_path, model, "connections: {back.x: front.y}\n")
        assert list(with_models(load_dag(str(file)), tmp_path / "home").parts) == ["back", "front"]
        assert list(make_plans(RunRequest(str(file))).by_name) == ["back", "front"]
    single = dag_file(tmp_path, "set/back")
    assert with_models(load_dag(str(single)), tmp_path).model_path == str(folder / "back" / "model.onnx")


def test_a_folder_given_with_a_dag_takes_the_place_of_its_model(tmp_path: Path, folder: Path) -> None:
    file = dag_file(tmp_path, "other.onnx")
    assert list(make_plans(RunRequest(str(file), folder)).by_name) == ["back", "front"]


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("empty", "", r"d\.yaml:2: model: no \.onnx file in this folder"),
        ("none.zip", "", r"d\.yaml:2: model: no such file"),
        ("text.zip", "", r"d\.yaml:2: model: cannot be unpacked"),
        ("set/back", "connections: {back.x: front.y}\n", r"d\.yaml:3: connections: is for several models"),
    ],
)
def test_what_holds_no_models_is_an_error_of_the_dag(
    tmp_path: Path, folder: Path, model: str, more: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(ConfigError, match=message):
        with_models(load_dag(str(dag_file(tmp_path, model, more))), tmp_path / "home")


def test_an_archive_without_models_is_named(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").touch()
    archive = shutil.make_archive(str(tmp_path / "texts"), "zip", tmp_path / "texts")
    with pytest.raises(InputError, match=r"texts\.zip: no \.onnx file in this archive"):
        read_models([archive], tmp_path / "home")
