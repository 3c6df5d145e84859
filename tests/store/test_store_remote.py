"""Artifacts shared through fsspec: two machines with one database and no common folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import bucket
from store_helpers import finish_all, pass_run, put, start_run

from autoopt.errors import InputError
from autoopt.store import Store
from autoopt.store.artifact_files import ArtifactLost
from autoopt.store.gc import collect
from autoopt.store.sql.database import open_database
from autoopt.store.verify import verify


def machine(tmp_path: Path, name: str, url: str) -> Store:
    return Store(open_database(f"sqlite:///{tmp_path}/shared.db"), tmp_path / name, artifacts_url=url)


def model(tmp_path: Path, content: bytes = b"graph") -> Path:
    folder = tmp_path / "model"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(content)
    (folder / "weights.bin").write_bytes(b"weights")
    return folder


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on an S3 server of the test's own."""
    with bucket(monkeypatch) as url:
        yield url


@pytest.mark.parametrize("kind", ["file", "memory", pytest.param("s3", marks=pytest.mark.service)])
def test_an_artifact_of_one_machine_is_available_on_another(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    urls = {"file": f"file://{tmp_path}/objects", "memory": f"memory://{tmp_path.name}"}
    url = urls.get(kind) or str(request.getfixturevalue("s3"))
    with machine(tmp_path, "one", url) as one, machine(tmp_path, "two", url) as two:
        digest = one.artifacts.put(model(tmp_path))
        path = two.artifacts.path(digest)
        assert path.read_bytes() == b"graph"
        assert (path.parent / "weights.bin").read_bytes() == b"weights"
        assert path.is_relative_to(tmp_path / "two")
        assert not list((tmp_path / "two" / "work").iterdir())


def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    with machine(tmp_path, "one", url) as one, machine(tmp_path, "two", url) as two:
        digest = one.artifacts.put(model(tmp_path))
        (tmp_path / "objects" / digest[:2] / digest / "model.onnx").write_bytes(b"other")
        with pytest.raises(ArtifactLost):
            two.artifacts.path(digest)
        assert [(p.digest, p.kind) for p in verify(two).problems] == [(digest, "missing")]
        two.artifacts.restorer = lambda *_: model(tmp_path / "again")
        two.results.finish_pass_run(pass_run(start_run(two).model, digest))
        assert two.artifacts.path(digest).read_bytes() == b"graph"
        shutil.rmtree(one.files.folder(digest))
        assert one.artifacts.path(digest).read_bytes() == b"graph", "the shared copy was replaced"


def test_a_copy_without_a_manifest_does_not_exist(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    with machine(tmp_path, "one", url) as one, machine(tmp_path, "two", url) as two:
        digest = one.artifacts.put(model(tmp_path))
        (tmp_path / "objects" / digest[:2] / digest / "manifest.json").unlink()
        with pytest.raises(ArtifactLost):
            two.artifacts.path(digest)


@pytest.mark.parametrize("name", ["/outside/model.onnx", "../outside", "a/../../outside", ""])
def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    url = f"file://{tmp_path}/objects"
    with machine(tmp_path, "one", url) as one, machine(tmp_path, "two", url) as two:
        digest = one.artifacts.put(model(tmp_path))
        named = name.replace("/outside", f"{tmp_path}/outside", 1) if name.startswith("/") else name
        manifest = tmp_path / "objects" / digest[:2] / digest / "manifest.json"
        manifest.write_text(json.dumps({named: 3}))
        with pytest.raises(ArtifactLost):
            two.artifacts.path(digest)
    assert not list(tmp_path.rglob("outside*"))


@pytest.mark.parametrize("kind", ["file", "memory", pytest.param("s3", marks=pytest.mark.service)])
def test_gc_cleans_shared_copies(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {"file": f"file://{tmp_path}/objects", "memory": f"memory://{tmp_path.name}"}
    url = urls.get(kind) or str(request.getfixturevalue("s3"))
    with machine(tmp_path, "one", url) as one, machine(tmp_path, "two", url) as two:
        assert two.remote is not None
        run = start_run(one)
        made = put(one, b"made")
        last = put(one, b"last")
        finish_all(one, pass_run(run.model, made), pass_run(made, last))
        one.runs.finish(run.id, "finished", {"best": {"artifact": last}})
        unneeded = put(one, b"of no use")
        assert collect(two, dry_run=False).artifacts == (), "machine one has only just made it"
        then = two.remote.written
        monkeypatch.setattr(two.remote, "written", lambda: {d: t - 7200 for d, t in then().items()})
        assert collect(two, dry_run=True).artifacts == (unneeded,)
        assert set(then()) == {run.model, made, last, unneeded}
        assert collect(two, dry_run=False).artifacts == (unneeded,)
        assert set(then()) == {run.model, made, last}
        assert verify(two).ok, "what is not on this machine is there"


def test_an_unknown_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="artifacts cannot be kept there") as caught:
        machine(tmp_path, "one", "nothing://user:canary@there")
    assert "canary" not in str(caught.value)
