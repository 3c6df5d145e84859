"""Releases in an OCI image layout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from autoopt.engine.tools.exports.oci_layout import ARTIFACT_TYPE, CURRENT, RELEASE, TAG, TITLE, add
from autoopt.errors import InputError
from autoopt.results import Baseline, ModelResult, RunResult, SweepEntry
from autoopt.results.release import Release


def release(number: int) -> Release:
    best = ModelResult(artifact="a" * 64, chain="fold")
    result = RunResult("r1", "finished", best=best, baseline=Baseline("b" * 64))
    return Release("production", number, SweepEntry("cnn", "ok", result=result), by="ann@forge")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "code").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"model")
    (folder / "code" / "run.py").write_bytes(b"print()\n")
    return folder


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return tmp_path / "layout"


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    """The bytes that a descriptor names, which it describes rightly."""
    content = (layout / "blobs" / "sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def tags(layout: Path) -> dict[str, dict[str, Any]]:
    """The manifests by their tags."""
    index = json.loads((layout / "index.json").read_text())
    assert {entry["artifactType"] for entry in index["manifests"]} == {ARTIFACT_TYPE}
    return {entry["annotations"][TAG]: json.loads(blob(layout, entry)) for entry in index["manifests"]}


def files(layout: Path, manifest: dict[str, Any]) -> dict[str, bytes]:
    """The files of a release by name."""
    assert json.loads(blob(layout, manifest["config"])) == {}
    return {layer["annotations"][TITLE]: blob(layout, layer) for layer in manifest["layers"]}


def test_a_release_has_a_layer_for_each_file(package: Path, layout: Path) -> None:
    add(package, release(1), str(layout))()
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    manifests = tags(layout)
    assert manifests.keys() == {"1", CURRENT}
    assert manifests["1"] == manifests[CURRENT]
    assert manifests["1"]["annotations"] == {RELEASE: "production/cnn 1", "dev.autoopt.run": "r1"}
    assert files(layout, manifests["1"]) == {"model.onnx": b"model", "code/run.py": b"print()\n"}


def test_current_is_the_release_that_was_switched_to_last(package: Path, layout: Path) -> None:
    add(package, release(1), str(layout))()
    (package / "model.onnx").write_bytes(b"better")
    switch = add(package, release(2), str(layout))
    assert tags(layout).keys() == {"1", CURRENT}, "nobody sees a release before the switch"
    switch()
    assert files(layout, tags(layout)[CURRENT])["model.onnx"] == b"better"
    add(package, release(1), str(layout))()
    manifests = tags(layout)
    assert manifests.keys() == {"1", "2", CURRENT}
    assert files(layout, manifests[CURRENT])["model.onnx"] == b"model", "a release stays as it was published"


def test_releases_share_equal_files(package: Path, layout: Path) -> None:
    add(package, release(1), str(layout))()
    before = set((layout / "blobs" / "sha256").iterdir())
    (package / "model.onnx").write_bytes(b"better")
    add(package, release(2), str(layout))()
    new = {file.read_bytes() for file in set((layout / "blobs" / "sha256").iterdir()) - before}
    assert b"better" in new
    assert len(new) == 2, "the model and the manifest"


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"manifests": [{}]}', '{"manifests": 1}'])
def test_other_folders_are_refused_and_stay_as_they_are(package: Path, layout: Path, content: str | None) -> None:
    layout.mkdir()
    (layout / "mine.txt").write_text("mine")
    if content is not None:
        (layout / "index.json").write_text(content)
    before = sorted(layout.iterdir())
    with pytest.raises(InputError, match="is no OCI layout of releases"):
        add(package, release(1), str(layout))
    assert sorted(layout.iterdir()) == before


@pytest.mark.parametrize("manifest", ["{}", "[]", "[" * 100_000, '{"annotations": 1}'])
def test_a_tag_of_another_program_is_refused(package: Path, layout: Path, manifest: str) -> None:
    add(package, release(1), str(layout))()
    index = json.loads((layout / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    (layout / "blobs" / "sha256" / digest).write_text(manifest)
    with pytest.raises(InputError, match="tag 1 is not release production/cnn 1; name another folder with --to"):
        add(package, release(1), str(layout))
