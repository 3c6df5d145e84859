"""Releases in an object store, as fsspec's file system in memory shows it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest

from autoopt.engine.tools import exports
from autoopt.errors import InputError, SystemFailure
from autoopt.results import ModelResult, RunResult, SweepEntry
from autoopt.results.sweep import Release


@pytest.fixture
def place() -> str:
    """The URL of an empty folder of the store, which all tests of a process share."""
    return f"memory://releases/{uuid.uuid4().hex}"


def release(number: int = 1, name: str = "cnn") -> Release:
    result = RunResult("r1", "finished", best=ModelResult("a" * 64, chain="fold"))
    return Release("production", number, SweepEntry(name, "ok", result=result))


def document(number: int = 1, name: str = "cnn", artifact: str = "a") -> dict[str, object]:
    return {"zoo": "production", "model": name, "number": number, "artifact": artifact * 64}


def package(folder: Path, content: Mapping[str, object], model: str = "model") -> Path:
    (folder / "external").mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_text(model)
    (folder / "external" / "weights.bin").write_text("weights")
    (folder / "release.json").write_text(json.dumps(content))
    return folder


def read(place: str, name: str) -> str:
    return str(fsspec.filesystem("memory").cat_file(f"{place}/{name}").decode())


def current(place: str) -> dict[str, object]:
    return dict(json.loads(read(place, "current.json")))


def test_a_package_is_copied_and_becomes_current_only_with_the_switch(tmp_path: Path, place: str) -> None:
    switch = exports.publish(package(tmp_path, document()), release(), place, document())
    assert read(place, "1/model.onnx") == "model"
    assert read(place, "1/external/weights.bin") == "weights"
    assert not fsspec.filesystem("memory").exists(f"{place}/current.json")
    switch()
    assert current(place) == {**document(), "folder": "1"}


def test_earlier_releases_stay_and_can_become_current_again(tmp_path: Path, place: str) -> None:
    for number in (1, 2):
        folder = package(tmp_path / str(number), document(number), f"model {number}")
        exports.publish(folder, release(number), place, document(number))()
    assert current(place)["folder"] == "2"
    exports.publish(tmp_path / "1", release(1), place, document(1))()
    assert current(place)["folder"] == "1"
    assert read(place, "2/model.onnx") == "model 2"


def test_a_release_that_is_there_is_not_copied_again(tmp_path: Path, place: str) -> None:
    exports.publish(package(tmp_path, document()), release(), place, document())
    exports.publish(package(tmp_path, document(), "changed since"), release(), place, document())()
    assert read(place, "1/model.onnx") == "model"


def test_an_incomplete_copy_is_completed(tmp_path: Path, place: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"{place}/1/model.onnx", b"half a mo")
    exports.publish(package(tmp_path, document()), release(), place, document())
    assert read(place, "1/model.onnx") == "model"
    assert json.loads(read(place, "1/release.json")) == document()


@pytest.mark.parametrize("other", [document(name="mlp"), document(artifact="b"), {**document(), "zoo": "test"}])
def test_the_number_of_another_model_is_refused(tmp_path: Path, place: str, other: dict[str, object]) -> None:
    exports.publish(package(tmp_path, document()), release(), place, document())()
    with pytest.raises(InputError, match=r"/1: is not release production/cnn 1; name another place with --to"):
        exports.publish(tmp_path, release(), place, other)
    assert current(place) == {**document(), "folder": "1"}


def test_a_place_without_a_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot publish there"):
        exports.publish(package(tmp_path, document()), release(), "nowhere://a/b", document())


def test_a_place_that_cannot_be_written_is_a_failure_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemFailure, match="cannot publish there"):
        exports.publish(package(tmp_path / "p", document()), release(), f"file://{tmp_path}/file/x", document())
