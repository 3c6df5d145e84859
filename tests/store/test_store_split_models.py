"""Large models in the store: weights are kept once, and everything else works as for small ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from store_helpers import age, pass_run, start_run

from autoopt.errors import SystemFailure
from autoopt.model import io, split_model
from autoopt.model.files import MODEL, bytes_in, digest_folder, files_in
from autoopt.store.files.artifacts import ArtifactFiles, ArtifactLost
from autoopt.store.maintenance.backup import backup, restore
from autoopt.store.maintenance.gc import collect
from autoopt.store.maintenance.quota import evict
from autoopt.store.maintenance.stats import stats
from autoopt.store.maintenance.transfer import export_run, import_run
from autoopt.store.maintenance.verify import verify
from autoopt.store.memory import MemoryStore
from autoopt.store.records import ModelRecord
from autoopt.store.sql.database import open_database
from autoopt.store.sql.store import SqlStore

WIDTH = 64
WEIGHT = WIDTH * WIDTH * 4


@pytest.fixture(autouse=True)
def splits_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_model, "SPLIT_ABOVE", WEIGHT)


def layers(name: str, seed: int = 0) -> ModelProto:
    """Four weights, the last one in a branch; those of other seeds differ from the second one on."""
    weights = [np.random.default_rng(99).standard_normal((WIDTH, WIDTH), np.float32)]
    weights += [np.random.default_rng([seed, layer]).standard_normal((WIDTH, WIDTH), np.float32) for layer in range(3)]
    nodes = [helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]) for layer in range(4)]
    values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", WIDTH]) for value in ("x0", "x4")]
    tensors = [numpy_helper.from_array(weight, f"w{layer}") for layer, weight in enumerate(weights)]
    branch = helper.make_graph([nodes.pop()], "branch", [], values[1:], [tensors.pop()])
    nodes.append(helper.make_node("If", ["yes"], ["x4"], then_branch=branch, else_branch=branch))
    tensors.append(numpy_helper.from_array(np.array(True), "yes"))
    graph = helper.make_graph(nodes, name, values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def put_large(store: SqlStore, name: str, seed: int = 0, *, external: bool = False) -> str:
    folder = store.home / "made" / f"{name}{seed}{external}"
    io.save(layers(name, seed), folder, external=external)
    return store.artifacts.put(folder)


def weights(store: SqlStore) -> list[Path]:
    return sorted((store.files.split_folder / "weights").glob("*/*"))


@pytest.mark.parametrize("external", [False, True])
def test_a_large_model_is_stored_split_and_has_its_digest(sqlite_store: SqlStore, external: bool) -> None:
    digest = put_large(sqlite_store, "net", external=external)
    source = sqlite_store.home / "made" / f"net0{external}"
    record = sqlite_store.artifacts.get(digest)
    assert (digest, record.bytes) == (digest_folder(source), bytes_in(source))
    assert record.files == {name: file.stat().st_size for name, file in files_in(source).items()}
    graph = sqlite_store.artifacts.readable(digest)
    assert split_model.is_split(graph)
    assert not sqlite_store.files.folder(digest).exists()
    path = sqlite_store.artifacts.path(digest)
    assert (path.name, digest_folder(path.parent)) == (MODEL, digest)
    copy = sqlite_store.home / "copy"
    copy.mkdir()
    assert digest_folder(sqlite_store.artifacts.write_files(digest, copy).parent) == digest


def test_a_changed_graph_costs_only_its_own_bytes(sqlite_store: SqlStore) -> None:
    put_large(sqlite_store, "net")
    before = bytes_in(sqlite_store.files.split_folder)
    put_large(sqlite_store, "renamed")
    assert bytes_in(sqlite_store.files.split_folder) - before < 1024
    put_large(sqlite_store, "net", seed=1)
    assert len(weights(sqlite_store)) == 4 + 3


def test_an_artifact_of_an_earlier_version_stays_as_it_is(
    sqlite_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(split_model, "SPLIT_ABOVE", 1 << 40)
        digest = put_large(sqlite_store, "net")
    assert put_large(sqlite_store, "net") == digest
    assert weights(sqlite_store) == []
    assert sqlite_store.artifacts.readable(digest) == sqlite_store.artifacts.path(digest)


def test_a_wrong_digest_is_refused(sqlite_store: SqlStore) -> None:
    folder = io.save(layers("net"), sqlite_store.home / "made").parent
    with pytest.raises(SystemFailure, match=f"has digest {digest_folder(folder)}, not {'0' * 64} as expected"):
        sqlite_store.artifacts.put(folder, "0" * 64)
    assert sqlite_store.files.digests() == set()


@pytest.mark.parametrize("part", ["graph", "weight"])
@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_damage_is_noticed_and_healed_by_storing_the_model_again(
    sqlite_store: SqlStore, part: str, damage: str
) -> None:
    digest = put_large(sqlite_store, "net")
    file = sqlite_store.files.graph(digest) if part == "graph" else weights(sqlite_store)[1]
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    if (part, damage) != ("graph", "delete"):  # without a graph there is no artifact
        with pytest.raises(ArtifactLost):
            sqlite_store.artifacts.readable(digest)
    assert [problem.digest for problem in verify(sqlite_store).problems] == [digest]
    put_large(sqlite_store, "net")
    assert split_model.is_split(sqlite_store.artifacts.readable(digest))
    assert verify(sqlite_store).ok


def test_a_damaged_copy_is_made_again(sqlite_store: SqlStore) -> None:
    digest = put_large(sqlite_store, "net")
    path = sqlite_store.artifacts.path(digest)
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    assert digest_folder(sqlite_store.artifacts.path(digest).parent) == digest


def test_a_damaged_weight_is_repaired_from_any_model_that_can_be_had(sqlite_store: SqlStore) -> None:
    first, second = put_large(sqlite_store, "net"), put_large(sqlite_store, "other", seed=1)
    sqlite_store.artifacts.path(second)  # has a copy in files of its own now
    (common,) = set(sqlite_store.files.weights(first)) & set(sqlite_store.files.weights(second))
    damaged = next(path for path in weights(sqlite_store) if path.name == common)
    damaged.chmod(0o644)
    damaged.write_bytes(bytes(WEIGHT))

    def restorer(digest: str) -> Path:
        raise SystemFailure("the source is gone", where=digest)

    assert {problem.digest for problem in verify(sqlite_store).problems} == {first, second}
    assert verify(sqlite_store, restorer).ok
    assert verify(sqlite_store).problems == ()


def test_a_lost_weight_comes_back_with_the_model(sqlite_store: SqlStore) -> None:
    source, made = put_large(sqlite_store, "net"), put_large(sqlite_store, "made", seed=1)
    sqlite_store.results.finish_pass_run(pass_run(source, made))
    lost = set(sqlite_store.files.weights(made)) - set(sqlite_store.files.weights(source))
    for path in weights(sqlite_store):
        if path.name in lost:
            path.unlink()
    sqlite_store.artifacts.restorer = lambda _: io.save(layers("made", 1), sqlite_store.home / "again").parent
    assert sqlite_store.artifacts.readable(made) == sqlite_store.files.graph(made)
    assert verify(sqlite_store).ok


def test_gc_keeps_weights_as_long_as_any_model_has_them(sqlite_store: SqlStore) -> None:
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
    assert not sqlite_store.files.folder(kept).exists(), "the copy that `path` made can be made again"
    assert verify(sqlite_store).ok
    assert verify(sqlite_store).orphans == ()


def test_gc_removes_what_killed_writers_left(sqlite_store: SqlStore) -> None:
    digest = put_large(sqlite_store, "net")
    graph = sqlite_store.files.graph(digest)
    shutil.copyfile(graph, graph.with_name(".0123456789abcdef.onnx"))
    sqlite_store.files.remove(digest)
    assert len(verify(sqlite_store).orphans) == 1
    age(sqlite_store)
    collect(sqlite_store, dry_run=False)
    assert weights(sqlite_store) == []
    assert list(sqlite_store.files.split_folder.glob(".*")) == []


def test_a_limit_counts_common_weights_once(sqlite_store: SqlStore) -> None:
    source = put_large(sqlite_store, "net")
    sqlite_store.models.add(ModelRecord(source, "net"))
    made = [put_large(sqlite_store, name, seed) for name, seed in (("renamed", 0), ("other", 1))]
    for digest in made:
        sqlite_store.results.finish_pass_run(pass_run(source, digest))
    age(sqlite_store)
    total = bytes_in(sqlite_store.files.root)
    result = evict(sqlite_store, 0, dry_run=False)
    assert set(result.artifacts) == set(made)
    assert result.bytes == total - bytes_in(sqlite_store.files.root)
    assert result.left == bytes_in(sqlite_store.files.root) == stats(sqlite_store).disk_bytes
    assert {path.name for path in weights(sqlite_store)} == set(sqlite_store.files.weights(source))


@pytest.mark.parametrize("external", [False, True])
def test_backup_export_and_shared_copies_hold_the_files_as_they_were(tmp_path: Path, external: bool) -> None:
    home = tmp_path / "one"
    home.mkdir()
    url = f"file://{tmp_path}/shared"
    with SqlStore(open_database(home / "autoopt.db"), home, artifacts_url=url) as store:
        run = start_run(store)
        digest = put_large(store, "net", external=external)
        store.results.finish_pass_run(pass_run(run.model, digest, run=run.id))
        shared = Path(shutil.copytree(tmp_path / "shared" / digest[:2] / digest, tmp_path / "copy"))
        (shared / "manifest.json").unlink()
        assert digest_folder(shared) == digest
        export_run(store, run.id, tmp_path / "run.tar")
        assert backup(store, tmp_path / "backup").lost == ()
        shutil.rmtree(store.files.root)
        assert split_model.is_split(store.artifacts.readable(digest)), "it comes from the shared copy"
    assert ArtifactFiles(tmp_path / "backup" / "artifacts").is_intact(digest)
    with MemoryStore(tmp_path / "two") as other:
        import_run(other, tmp_path / "run.tar")
        assert split_model.is_split(other.artifacts.readable(digest))
    with MemoryStore(tmp_path / "three") as third:
        assert restore(tmp_path / "backup", third).lost == ()
        assert verify(third).ok


def test_what_a_worker_has_split_is_taken_over(sqlite_store: SqlStore) -> None:
    new = io.save_split(layers("net"), sqlite_store.artifacts.split_folder)
    assert new is not None
    graph = new.draft.publish(new.digest)
    assert sqlite_store.artifacts.put(graph, new.digest) == new.digest
    assert sqlite_store.artifacts.get(new.digest).bytes == new.bytes
    assert sqlite_store.artifacts.readable(new.digest) == graph


def test_a_worker_with_a_damaged_weight_is_not_believed(sqlite_store: SqlStore) -> None:
    new = io.save_split(layers("net"), sqlite_store.artifacts.split_folder)
    assert new is not None
    graph = new.draft.publish(new.digest)
    weight = weights(sqlite_store)[0]
    os.chmod(weight, 0o644)
    weight.write_bytes(bytes(WEIGHT))
    with pytest.raises(ArtifactLost, match="a weight of the artifact is damaged"):
        sqlite_store.artifacts.put(graph, new.digest)
