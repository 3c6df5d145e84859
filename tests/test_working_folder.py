"""Working folders: one per process, cleared by a later process, and never taken from the living."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import HANG_SECONDS

import autoopt
from autoopt.owner import this_process
from autoopt.working_folder import (
    OWNER_FILE,
    PREFIX,
    abandoned_folders,
    make_working_folder,
    remove_temporary_folder,
    replacing,
    temporary_folder,
    working_folder,
    working_folders,
)

MAKERS = ("tempfile.mkdtemp", "tempfile.TemporaryDirectory")
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
MAKE = """
import sys
from pathlib import Path
from autoopt.working_folder import make_working_folder
print(make_working_folder(Path(sys.argv[1])), flush=True)
sys.stdin.readline()
"""


def folder_of(owner: str, parent: Path) -> Path:
    folder = make_working_folder(parent)
    (folder / OWNER_FILE).write_text(owner)
    return folder


def ended() -> str:
    """A process with our id that was started with the machine."""
    return this_process().rpartition("/")[0] + "/1"


def test_folders_of_ended_processes_are_removed(tmp_path: Path) -> None:
    dead = folder_of(ended(), tmp_path)
    (dead / "model.onnx").write_bytes(b"x")
    assert abandoned_folders(tmp_path) == [dead]
    ours = make_working_folder(tmp_path)
    assert list(tmp_path.iterdir()) == [ours]
    assert abandoned_folders(tmp_path) == []


@pytest.mark.parametrize("owner", ["", "elsewhere.12345678/boot/1/1/1"])
def test_folders_of_unknown_owners_stay(owner: str, tmp_path: Path) -> None:
    unknown = folder_of(owner, tmp_path)
    make_working_folder(tmp_path)
    assert unknown.is_dir()


def test_a_folder_that_is_just_being_made_stays(tmp_path: Path) -> None:
    new = make_working_folder(tmp_path)
    (new / OWNER_FILE).unlink()
    make_working_folder(tmp_path)
    assert new.is_dir()


def test_processes_of_two_containers_leave_each_others_folders(tmp_path: Path) -> None:
    """In pid namespaces of their own, a folder in common: each sees the other's processes as ended, and its lock."""
    if os.geteuid() != 0 or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces need root and util-linux")
    command = [*NAMESPACE, sys.executable, "-c", MAKE, str(tmp_path)]
    containers: list[subprocess.Popen[str]] = []
    for _ in range(2):
        container = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        containers.append(container)
        container.stdout.readline()
    ours = make_working_folder(tmp_path)
    left = working_folders(tmp_path)
    containers[0].kill()
    containers[0].communicate(timeout=HANG_SECONDS)
    abandoned = abandoned_folders(tmp_path)
    containers[1].communicate("\n", timeout=HANG_SECONDS)
    assert len(left) == 3
    assert len(abandoned) == 1
    assert abandoned_folders(tmp_path) == [folder for folder in left if folder != ours]


def test_a_namespace_with_the_process_table_of_another_knows_nothing_of_it(tmp_path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces need root and util-linux")
    script = "from autoopt.owner import this_process; print(this_process().split('/')[2])"
    done = subprocess.run([*command, sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "-\n"


def test_a_process_has_one_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_temporary_folder()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = temporary_folder()
    assert folder.parent == tmp_path
    assert temporary_folder() == folder
    remove_temporary_folder()
    assert list(tmp_path.iterdir()) == []


def test_a_working_folder_ends_with_its_context(tmp_path: Path) -> None:
    def fail() -> None:
        with working_folder(tmp_path) as folder:
            (folder / "model.onnx").write_bytes(b"x")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with replacing(file, mode=0o600) as new:
        new.write_text("first")
        assert not file.exists()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("first", 0o600)

    def fail() -> None:
        with replacing(file) as new:
            new.write_text("half of the sec")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "first")]


def test_only_workers_make_temporary_folders_that_nobody_would_clear() -> None:
    """All others name a folder that the next start or `store gc` clears; the temporary folder of workers is one."""
    root = Path(autoopt.__file__).parent
    unowned = set()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if name.parts[0] not in ("passes", "measure") and any(without_a_place(ast.parse(file.read_text()))):
            unowned.add(str(name))
    assert unowned == set()


def without_a_place(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that make a temporary folder anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS:
            names = {keyword.arg for keyword in node.keywords}
            if "dir" not in names:
                yield node


def test_a_folder_that_cannot_be_signed_is_removed(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))  # as on a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            make_working_folder(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_maker_was_killed_before_it_signed_is_cleared_later(tmp_path: Path) -> None:
    for name, owner in (("new", None), ("old", None), ("torn", "")):
        folder = tmp_path / f"{PREFIX}{name}"
        folder.mkdir()
        if owner is not None:
            (folder / OWNER_FILE).write_text(owner)
        if name != "new":
            os.utime(folder, (0, 0))
    assert {folder.name for folder in abandoned_folders(tmp_path)} == {f"{PREFIX}old", f"{PREFIX}torn"}


def test_a_folder_that_was_removed_leaves_no_file_open(tmp_path: Path) -> None:
    with working_folder(tmp_path) as folder:
        assert any(Path(os.readlink(link)).is_relative_to(folder) for link in open_files())
    assert not any(Path(os.readlink(link)).is_relative_to(tmp_path) for link in open_files())


def open_files() -> list[Path]:
    return [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
