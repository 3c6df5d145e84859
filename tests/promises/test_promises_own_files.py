"""The user's own files: only what autoopt has written is replaced, and no input is touched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import RUN, Place, filled

pytestmark = pytest.mark.service

ZOO = "name: zoo\ndag: dag.yaml\nmodels: [model.onnx]\n"
OWN = b"years of work\n"
SWEEP = ("sweep", "zoo.yaml", "--engine", "inline")
REPLAY = ("replay", "out/recipe.json", "--model", "model.onnx")
FILES = [
    ("report", "--out"),
    ("check", "zoo.yaml", "--junit"),
    ("export", "--to", "optuna:"),
    ("init", "model.onnx", "--out"),
    ("apply", "shape_inference", "model.onnx", "--out"),
]
"""Commands that write a file, up to its name."""
FOLDERS = [
    (*RUN, "--again", "all", "--out"),
    ("export", "--out"),
    (*REPLAY, "--out"),
    (*SWEEP, "--out"),
]
"""Commands that write a folder, up to its name."""
BACKUP = ("store", "backup")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with a run and a sweep, and what they wrote."""
    place = filled(tmp_path_factory.mktemp("made") / "user", width=512)
    place.write("zoo.yaml", ZOO)
    place.call(*RUN)
    place.call(*SWEEP, "--out", "swept")
    return place


@pytest.fixture
def target(made: Place) -> Iterator[Path]:
    """The place to which a command is told to write."""
    path = made / "target"
    yield path
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def at_target(command: tuple[str, ...]) -> list[str]:
    """A command with the name of the target."""
    *words, last = command
    return [*words, f"{last}target"] if last.endswith(":") else [*command, "target"]


def contents(place: Place) -> dict[Path, bytes]:
    """All files of the user, without those of the home and temporary ones."""
    files = (path for path in place.folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if not path.relative_to(place.folder).parts[0].startswith(".")}


@pytest.mark.parametrize("command", [*FILES, *FOLDERS, BACKUP])
def test_no_file_of_the_user_is_replaced(command: tuple[str, ...], made: Place, target: Path) -> None:
    target.write_bytes(OWN)
    before = contents(made)
    assert "target" in made.refused(*at_target(command))
    assert contents(made) == before


def test_no_file_behind_a_link_is_replaced(made: Place, target: Path) -> None:
    target.symlink_to(made.write("own", OWN))
    assert "target" in made.refused("report", "--out", "target")
    assert (made / "own").read_bytes() == OWN


@pytest.mark.parametrize("command", [*FOLDERS, BACKUP])
def test_no_folder_of_the_user_is_replaced(command: tuple[str, ...], made: Place, target: Path) -> None:
    """A folder that has one file of a package, or what a sweep or a backup writes there."""
    names = {"sweep": ("sweep.json", "sweep.html"), "store": ("autoopt.db",)}
    for name in names.get(command[0], ("model.onnx", "recipe.json")):
        target.mkdir()
        (target / name).write_bytes(OWN)
        before = contents(made)
        assert "target" in made.call(*command, "target", codes=(2,)).err.splitlines()[-1]
        assert contents(made) == before
        shutil.rmtree(target)


@pytest.mark.parametrize("command", [*FILES, *FOLDERS])
def test_what_autoopt_wrote_is_replaced_and_other_files_beside_it_stay(
    command: tuple[str, ...], made: Place, target: Path
) -> None:
    inputs = {name: (made / name).read_bytes() for name in ("model.onnx", "dag.yaml", "zoo.yaml")}
    if command in FOLDERS:
        target.mkdir()
        (target / "notes.txt").write_bytes(OWN)
    made.call(*at_target(command))
    if "init" in command or "apply" in command:  # their output is for the user to edit
        made.refused(*command, "target")
        made.call(*command, "target", "--force")
    else:
        made.call(*at_target(command))
    if target.is_dir():
        assert (target / "notes.txt").read_bytes() == OWN
    assert inputs == {name: (made / name).read_bytes() for name in inputs}


@pytest.mark.parametrize("command", [(*RUN, "--again", "all"), ("export",), REPLAY])
def test_the_source_model_is_not_replaced_by_what_was_made_from_it(command: tuple[str, ...], made: Place) -> None:
    before = (made / "model.onnx").read_bytes()
    try:
        made.call(*command, "--out", ".", codes=(2,))
        assert (made / "model.onnx").read_bytes() == before
    finally:
        (made / "model.onnx").write_bytes(before)
