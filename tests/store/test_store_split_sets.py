"""Model sets in the store: they share the weights of their models, and everything else works as for single models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from split_models import WEIGHT, WIDTH, put_large, weights
from store_helpers import age, pass_run, start_run

from autoopt.model import io
from autoopt.model.files import bytes_in, digest_folder, files_in
from autoopt.model.model_set import MODEL_SET, ModelSet, Part
from autoopt.model.session import make_session
from autoopt.model.split import splitting
from autoopt.model.split.sets import is_split_set, read_description
from autoopt.model.storage import size_of
from autoopt.store import Store, open_store
from autoopt.store.files.artifacts import ArtifactFiles, ArtifactLost
from autoopt.store.maintenance.backup import backup, restore
from autoopt.store.maintenance.gc import collect
from autoopt.store.maintenance.verify import verify
from autoopt.store.sql.database import open_database


@pytest.fixture(autouse=True)
def splits_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", WEIGHT)


def put_set(store: Store, models: dict[str, str]) -> str:
    """Store a set of stored models, which follow each other."""
    connections = {"first.x0": "x0", "second.x0": "first.x4", "second.x": "first.x4"}
    description = ModelSet({name: Part(f"{name}/model.onnx") for name in models}, connections)
    return store.artifacts.put_set(json.dumps(description.to_json(), indent=2).encode(), models)


def put_small(store: Store) -> str:
    header = '<ir_version: 8, opset_import: ["": 17]>'
    text = f"{header} g (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{ y = Relu (x) }}"
    model = parser.parse_model(text)
    return store.artifacts.put(io.save(model, store.home / "made" / "small").parent)


@pytest.mark.parametrize("external", [False, True])
def test_a_set_shares_the_weights_of_its_models(sqlite_store: Store, external: bool) -> None:
    first, second = put_large(sqlite_store, "net", external=external), put_small(sqlite_store)
    before = bytes_in(sqlite_store.files.root)
    digest = put_set(sqlite_store, {"first": first, "second": second})
    assert bytes_in(sqlite_store.files.root) - before < WEIGHT + sqlite_store.files.bytes_beside_weights(digest)
    copy = sqlite_store.home / "copy"
    copy.mkdir()
    assert sqlite_store.artifacts.write_files(digest, copy) == copy / MODEL_SET
    assert digest_folder(copy) == digest
    assert digest_folder(copy / "first") == first
    record = sqlite_store.artifacts.get(digest)
    assert record.files == {name: file.stat().st_size for name, file in files_in(copy).items()}
    readable = sqlite_store.artifacts.path(digest)
    assert size_of(str(readable)) == size_of(str(copy / MODEL_SET))
    feed = {"x0": np.ones((2, WIDTH), np.float32)}
    expected, actual = (make_session(path).run(None, feed)[0] for path in (copy / MODEL_SET, readable))
    np.testing.assert_array_equal(actual, expected)
    assert read_description(readable) == ModelSet.read(copy / MODEL_SET)
    assert sqlite_store.artifacts.put(copy) == digest, "the files are the same artifact"
    assert not sqlite_store.files.folder(digest).exists()


def test_a_set_outlives_its_models(sqlite_store: Store) -> None:
    models = {"first": put_large(sqlite_store, "net"), "second": put_large(sqlite_store, "net", seed=1)}
    digest = put_set(sqlite_store, models)
    run = start_run(sqlite_store)
    sqlite_store.results.finish_pass_run(pass_run(run.model, digest))
    age(sqlite_store)
    before = bytes_in(sqlite_store.files.root)
    done = collect(sqlite_store, dry_run=False)
    assert set(done.artifacts) == set(models.values())
    assert before - bytes_in(sqlite_store.files.root) == done.bytes
    assert len(weights(sqlite_store)) == 4 + 3
    assert verify(sqlite_store).ok
    sqlite_store.files.remove(digest)
    age(sqlite_store)
    assert len(sqlite_store.files.unused_weights(())) == 4 + 3
    assert list(sqlite_store.files.split_folder.glob("*.o*")) == []


@pytest.mark.parametrize("part", ["description", "graph"])
@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_a_damaged_set_comes_back_with_its_files(sqlite_store: Store, part: str, damage: str) -> None:
    digest = put_set(sqlite_store, {"first": put_large(sqlite_store, "net"), "second": put_small(sqlite_store)})
    copy = sqlite_store.home / "copy"
    copy.mkdir()
    sqlite_store.artifacts.write_files(digest, copy)
    readable = sqlite_store.files.split(digest)
    file = readable.with_name(f"{MODEL_SET}.original")
    if part == "graph":
        file = sqlite_store.files.split_folder / f"{digest}-0.onnx"
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(ArtifactLost):
        sqlite_store.artifacts.path(digest)
    assert [problem.digest for problem in verify(sqlite_store).problems] == [digest]
    assert sqlite_store.artifacts.put(copy) == digest
    assert sqlite_store.artifacts.path(digest) == readable
    assert verify(sqlite_store).ok


def test_gc_removes_unfinished_sets(sqlite_store: Store) -> None:
    digest = put_set(sqlite_store, {"first": put_large(sqlite_store, "net"), "second": put_small(sqlite_store)})
    sqlite_store.files.split(digest).unlink()
    assert len(verify(sqlite_store).orphans) == 2
    age(sqlite_store)
    collect(sqlite_store, dry_run=False)
    assert list(sqlite_store.files.split_folder.glob("*.onnx")) == []
    assert list(sqlite_store.files.split_folder.glob("sets/*")) == []


def test_backup_and_shared_copies_hold_the_files_of_sets(tmp_path: Path) -> None:
    home = tmp_path / "one"
    home.mkdir()
    with Store(open_database(home / "autoopt.db"), home, artifacts_url=f"file://{tmp_path}/shared") as store:
        run = start_run(store)
        digest = put_set(store, {"first": put_large(store, "net"), "second": put_small(store)})
        store.results.finish_pass_run(pass_run(run.model, digest, run=run.id))
        assert backup(store, tmp_path / "backup").lost == ()
        shutil.rmtree(store.files.root)
        assert is_split_set(store.artifacts.path(digest)), "it comes from the shared copy"
    assert ArtifactFiles(tmp_path / "backup" / "artifacts").is_intact(digest)
    with open_store(None, tmp_path / "two") as other:
        assert restore(tmp_path / "backup", other).lost == ()
        assert is_split_set(other.artifacts.path(digest))
