"""Disks that are full, read-only or somebody else's, and databases that are newer, through the real command."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import RUN, Command, fill

from autoopt.store import open_store
from autoopt.store.files import filesystem

SCRIPT = Path(__file__).with_name("full_disk.py")
NAMESPACE = ("unshare", "--mount", "--map-root-user")
SIZES = ("300k", "1300k", "1700k")


def can_mount() -> bool:
    """Whether this machine lets us have file systems of our own, that nobody else sees."""
    try:
        command = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="needs mount namespaces (Linux, unshare)")
def test_a_full_disk_is_one_line_and_the_run_then_as_if_nothing_had_been(tmp_path: Path) -> None:
    fill(tmp_path, width=8192)  # half a megabyte
    words = [*NAMESPACE, sys.executable, str(SCRIPT), str(tmp_path), *SIZES]
    env = {**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    small = [stderr.splitlines() for _, stderr in results["small"]]
    assert [code for code, _ in results["small"]] == [3] * len(SIZES), small
    assert all("full" in lines[-1] or "No space left" in lines[-1] for lines in small)
    assert all(line.startswith("[") for lines in small for line in lines[:-1])  # progress
    assert any(len(lines) > 1 for lines in small)  # one was in the middle of a run
    assert results["large"][0] == results["verified"][0] == results["roomy"][0] == 0, results["large"]
    assert results["left"] == results["roomy left"]

    assert {command: stderr for command, (code, stderr) in results["read"].items() if code} == {}
    code, stderr = results["written"]
    assert (code, len(stderr.splitlines())) == (3, 1)
    assert "ead-only" in stderr


@pytest.mark.parametrize("words", [RUN, ("runs",), ("best",), ("store", "stats"), ("resume", "--engine", "inline")])
def test_what_the_store_cannot_be_on_or_of_is_one_line(
    words: tuple[str, ...], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    with open_store(None, tmp_path / "home"):
        pass

    def refusal() -> str:
        code, out, err = command(tmp_path, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "filesystem_of", lambda *_: "nfs4")
        assert "SQLite does not work on the network file system nfs4; set AUTOOPT_HOME" in refusal()
    with sqlite3.connect(tmp_path / "home" / "autoopt.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'fffff'")
    assert "upgrade autoopt" in refusal()
