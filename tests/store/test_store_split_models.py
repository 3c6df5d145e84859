"""Large models in the store: weights are kept once, and everything else works as for small ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from split_models import WEIGHT, layers, put_large, split_here, weights
from store_helpers import age, pass_run, start_run

from autoopt.errors import SystemFailure
from autoopt.model import io, splitting
from autoopt.model.files import bytes_in, digest_folder, files_in
from autoopt.model.model_set import MODEL_SET, ModelSet, Part
from autoopt.model.split import digest_files, is_split, sizes_of
from autoopt.store import Store, open_store
from autoopt.store.artifact_files import ArtifactFiles, ArtifactLost
from autoopt.store.backup import backup, restore
from autoopt.store.gc import collect
from autoopt.store.sql.database import open_database
from autoopt.store.verify import stats, verify


@pytest.fixture(autouse=True)
def splits_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", WEIGHT)
    monkeypatch.setattr(splitting, "split_elsewhere", split_here)


@pytest.mark.parametrize("external", [False, True])
def test_a_large_model_is_stored_split_and_has_its_digest(sqlite_store: Store, external: bool) -> None:
    digest = put_large(sqlite_store, "net", external=external)
    source = sqlite_store.home / "made" / f"net0{external}"
    record = sqlite_store.artifacts.get(digest)
    assert (digest, record.bytes) == (digest_folder(source), bytes_in(source))
    assert record.files == {name: file.stat().st_size for name, file in files_in(source).items()}
    assert is_split(sqlite_store.artifacts.path(digest))
    assert not sqlite_store.files.folder(digest).exists()
    copy = sqlite_store.home / "copy"
    copy.mkdir()
    assert digest_folder(sqlite_store.artifacts.write_files(digest, copy).parent) == digest


def test_a_changed_graph_costs_only_its_own_bytes(sqlite_store: Store) -> None:
    put_large(sqlite_store, "net")
    before = bytes_in(sqlite_store.files.split_folder)
    put_large(sqlite_store, "renamed")
    assert bytes_in(sqlite_store.files.split_folder) - before < WEIGHT / 2
    put_large(sqlite_store, "net", seed=1)
    assert len(weights(sqlite_store)) == 4 + 3 + 2, "with what is no weight, by the name of the graph"


def test_a_wrong_digest_is_refused(sqlite_store: Store) -> None:
    folder = io.save(layers("net"), sqlite_store.home / "made").parent
    with pytest.raises(SystemFailure, match=f"has digest {digest_folder(folder)}, not {'0' * 64} as expected"):
        sqlite_store.artifacts.put(folder, "0" * 64)
    assert sqlite_store.files.digests() == set()


@pytest.mark.parametrize("part", ["graph", "weight"])
@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_damage_is_noticed_and_healed_by_storing_the_model_again(sqlite_store: Store, part: str, damage: str) -> None:
    digest = put_large(sqlite_store, "net")
    file = sqlite_store.files.split(digest) if part == "graph" else weights(sqlite_store)[1]
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    if (part, damage) != ("graph", "delete"):  # without a graph there is no artifact
        with pytest.raises(ArtifactLost):
            sqlite_store.artifacts.path(digest)
    assert [problem.digest for problem in verify(sqlite_store).problems] == [digest]
    put_large(sqlite_store, "net")
    assert is_split(sqlite_store.artifacts.path(digest))
    assert verify(sqlite_store).ok


def test_a_damaged_weight_is_repaired_from_any_model_that_can_be_had(sqlite_store: Store) -> None:
    first, second = put_large(sqlite_store, "net"), put_large(sqlite_store, "other", seed=1)
    (common,) = set(sqlite_store.files.weights(first)) & set(sqlite_store.files.weights(second))
    damaged = next(path for path in weights(sqlite_store) if path.name == common)
    damaged.chmod(0o644)
    damaged.write_bytes(bytes(WEIGHT))

    def restorer(digest: str) -> Path:
        if digest == first:
            raise SystemFailure("the source is gone", where=digest)
        return io.save(layers("other", 1), sqlite_store.home / "again").parent

    assert {problem.digest for problem in verify(sqlite_store).problems} == {first, second}
    assert verify(sqlite_store, restorer).ok
    assert verify(sqlite_store).problems == ()


def test_a_lost_weight_comes_back_with_the_model(sqlite_store: Store) -> None:
    source, made = put_large(sqlite_store, "net"), put_large(sqlite_store, "made", seed=1)
    sqlite_store.results.finish_pass_run(pass_run(source, made))
    lost = set(sqlite_store.files.weights(made)) - set(sqlite_store.files.weights(source))
    for path in weights(sqlite_store):
        if path.name in lost:
            path.unlink()
    sqlite_store.artifacts.restorer = lambda _: io.save(layers("made", 1), sqlite_store.home / "again").parent
    assert sqlite_store.artifacts.path(made) == sqlite_store.files.split(made)
    assert verify(sqlite_store).ok


def test_gc_keeps_weights_as_long_as_any_model_has_them(sqlite_store: Store) -> None:
    run = start_run(sqlite_store)
    kept, unneeded = put_large(sqlite_store, "net"), put_large(sqlite_store, "net", seed=1)
    sqlite_store.results.finish_pass_run(pass_run(run.model, kept))
    sqlite_store.artifacts.path(kept)
    assert collect(sqlite_store, dry_run=False).artifacts == (), "all of it was just used"
    age(sqlite_store)
    before = bytes_in(sqlite_store.files.root)
    dry = collect(sqlite_store)
    assert dry.artifacts == (unneeded,)
    done = collect(sqlite_store, dry_run=False)
    assert (done.artifacts, done.bytes) == (dry.artifacts, dry.bytes)
    assert before - bytes_in(sqlite_store.files.root) == done.bytes
    assert {path.name for path in weights(sqlite_store)} == set(sqlite_store.files.weights(kept))
    assert verify(sqlite_store).ok
    assert verify(sqlite_store).orphans == ()


def test_gc_removes_what_killed_writers_left(sqlite_store: Store) -> None:
    digest = put_large(sqlite_store, "net")
    graph = sqlite_store.files.split(digest)
    shutil.copyfile(graph, graph.with_name(".0123456789abcdef.onnx"))
    sqlite_store.files.remove(digest)
    assert len(verify(sqlite_store).orphans) == 1
    age(sqlite_store)
    collect(sqlite_store, dry_run=False)
    assert weights(sqlite_store) == []
    assert list(sqlite_store.files.split_folder.glob(".*")) == []


def test_statistics_count_common_weights_once(sqlite_store: Store) -> None:
    for name, seed in (("net", 0), ("renamed", 0), ("other", 1)):
        put_large(sqlite_store, name, seed)
    assert stats(sqlite_store).disk_bytes == bytes_in(sqlite_store.files.root) < stats(sqlite_store).artifact_bytes


@pytest.mark.parametrize("external", [False, True])
def test_backup_and_shared_copies_hold_the_files_as_they_were(tmp_path: Path, external: bool) -> None:
    home = tmp_path / "one"
    home.mkdir()
    url = f"file://{tmp_path}/shared"
    with Store(open_database(home / "autoopt.db"), home, artifacts_url=url) as store:
        run = start_run(store)
        digest = put_large(store, "net", external=external)
        store.results.finish_pass_run(pass_run(run.model, digest, run=run.id))
        shared = Path(shutil.copytree(tmp_path / "shared" / digest[:2] / digest, tmp_path / "copy"))
        (shared / "manifest.json").unlink()
        assert digest_folder(shared) == digest
        assert backup(store, tmp_path / "backup").lost == ()
        shutil.rmtree(store.files.root)
        assert is_split(store.artifacts.path(digest)), "it comes from the shared copy"
    assert ArtifactFiles(tmp_path / "backup" / "artifacts").is_intact(digest)
    with open_store(None, tmp_path / "two") as other:
        assert restore(tmp_path / "backup", other).lost == ()
        assert is_split(other.artifacts.path(digest))
        assert verify(other).ok


def split_by_worker(store: Store) -> tuple[Path, str]:
    graph = splitting.save_split(layers("net"), store.artifacts.split_folder)
    assert graph is not None
    digest = digest_files(graph)
    return splitting.publish(graph, digest), digest


def test_what_a_worker_has_split_is_taken_over(sqlite_store: Store) -> None:
    graph, digest = split_by_worker(sqlite_store)
    assert sqlite_store.artifacts.put(graph, digest) == digest
    assert sqlite_store.artifacts.get(digest).bytes == sum(sizes_of(graph).values())
    assert sqlite_store.artifacts.path(digest) == graph


def test_a_worker_with_a_damaged_weight_is_not_believed(sqlite_store: Store) -> None:
    graph, digest = split_by_worker(sqlite_store)
    weight = weights(sqlite_store)[0]
    os.chmod(weight, 0o644)
    weight.write_bytes(bytes(WEIGHT))
    with pytest.raises(ArtifactLost, match="a weight of the artifact is damaged"):
        sqlite_store.artifacts.put(graph, digest)


def test_a_set_holds_the_files_of_its_models(sqlite_store: Store) -> None:
    first, second = put_large(sqlite_store, "net"), put_large(sqlite_store, "net", seed=1)
    description = ModelSet({"a": Part("a/model.onnx"), "b": Part("b/model.onnx")}, {"a.x0": "x0", "b.x0": "a.x4"})
    digest = sqlite_store.artifacts.put_set(json.dumps(description.to_json()).encode(), {"a": first, "b": second})
    folder = sqlite_store.artifacts.path(digest).parent
    assert (digest_folder(folder), digest_folder(folder / "a"), digest_folder(folder / "b")) == (digest, first, second)
    assert ModelSet.read(folder / MODEL_SET) == description
