"""Models as files: whole and verified, or named as lost."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from store_helpers import pass_run, put, start_run, write_model

from autoopt.errors import InputError, SystemFailure
from autoopt.store import Store
from autoopt.store.artifact_files import ArtifactFiles, ArtifactLost
from autoopt.store.verify import verify


def test_every_flip_truncation_and_deletion_is_detected(sqlite_store: Store) -> None:
    rng = random.Random(0)
    digests = [put(sqlite_store, rng.randbytes(200 + i), weights=rng.randbytes(100)) for i in range(20)]
    for attempt in range(300):
        digest = rng.choice(digests)
        folder = sqlite_store.files.folder(digest)
        file = rng.choice(sorted(folder.iterdir()))
        content = file.read_bytes()
        file.unlink()
        kind = rng.choice(("flip", "truncate", "delete"))
        at = rng.randrange(len(content))
        if kind == "flip":
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        elif kind == "truncate":
            file.write_bytes(content[:at])
        with pytest.raises(ArtifactLost) as error:
            sqlite_store.artifacts.path(digest)
        assert error.value.digest == digest
        if attempt % 30 == 0:
            assert [p.digest for p in verify(sqlite_store).problems] == [digest]
        file.write_bytes(content)
        assert sqlite_store.artifacts.path(digest).exists()


def test_a_damaged_artifact_is_healed_by_storing_it_again(sqlite_store: Store) -> None:
    digest = put(sqlite_store, b"model")
    path = sqlite_store.artifacts.path(digest)
    path.chmod(0o644)
    path.write_bytes(b"MODEL")
    put(sqlite_store, b"model")
    assert sqlite_store.artifacts.path(digest).read_bytes() == b"model"


def test_a_lost_artifact_is_made_again_when_asked_for(sqlite_store: Store, tmp_path: Path) -> None:
    run = start_run(sqlite_store)
    made = put(sqlite_store, b"made")
    sqlite_store.results.finish_pass_run(pass_run(run.model, made))
    shutil.rmtree(sqlite_store.files.folder(made))
    requests = []

    def restore(digest: str) -> Path:
        requests.append(digest)
        return write_model(tmp_path / "again", b"made" if digest == made else b"?")

    sqlite_store.artifacts.restorer = restore
    assert sqlite_store.artifacts.path(made).read_bytes() == b"made"
    assert requests == [made]
    shutil.rmtree(sqlite_store.files.folder(made))
    sqlite_store.artifacts.restorer = lambda *_: write_model(tmp_path / "wrong", b"other bytes")
    with pytest.raises(SystemFailure, match="as expected"):
        sqlite_store.artifacts.path(made)


def test_a_folder_without_a_model_is_refused(sqlite_store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty"):
        sqlite_store.artifacts.put(tmp_path / "empty")
    linked = write_model(tmp_path / "linked", b"model")
    (linked / "secret.data").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="not a regular file"):
        sqlite_store.artifacts.put(linked)
    with pytest.raises(SystemFailure, match="as expected"):
        sqlite_store.artifacts.put(write_model(tmp_path / "model", b"model"), "0" * 64)
    assert sqlite_store.artifacts.all() == ()
    assert sqlite_store.files.leftovers() == []


def test_consuming_moves_unless_a_file_has_other_names(sqlite_store: Store, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", b"model", weights=b"w")
    os.link(model / "weights.data", tmp_path / "another name")
    digest = sqlite_store.artifacts.put(model, consume=True)
    stored = sqlite_store.artifacts.path(digest).parent
    assert not (model / "model.onnx").exists()
    assert (stored / "weights.data").stat().st_nlink == 1
    assert (tmp_path / "another name").read_bytes() == b"w"


def test_artifacts_cannot_be_written_by_accident(sqlite_store: Store) -> None:
    path = sqlite_store.artifacts.path(put(sqlite_store, b"model"))
    assert path.stat().st_mode & 0o222 == 0


def test_a_read_only_store_can_be_read(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path)
    digest = files.put(write_model(tmp_path.parent / "model", b"model")).digest
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").mkdir()  # what an unwritable folder does to a lock file, also for root
    assert ArtifactFiles(tmp_path).path(digest).read_bytes() == b"model"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_of_the_group_stores_and_removes_the_same_artifact(tmp_path: Path) -> None:
    user, group = 65534, 4242
    model = write_model(tmp_path / "model", b"model")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        os.chown(root, 0, group)
        root.chmod(0o2775)
        before = os.umask(0o002)
        pid = -1
        try:
            digest = ArtifactFiles(root).put(model).digest
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    copy = write_model(root / "copy", b"model")
                    os.setgroups([group])
                    os.setresgid(group, group, group)
                    os.setresuid(user, user, user)
                    files = ArtifactFiles(root)
                    code = int(files.put(copy).digest != digest)
                    files.remove(digest)
                finally:
                    os._exit(code)
        finally:
            os.umask(before)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not ArtifactFiles(root).folder(digest).exists()
