"""Lock files: generations where one cannot be removed, and the processes that hold a lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from autoopt.workers.lock_files import (
    describe_processes,
    is_replaced,
    is_suspended,
    lock_holders,
    newest_generation,
    open_lock_file,
    replace_lock_file,
)


def test_a_replaced_file_is_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = open_lock_file(path)
    assert not is_replaced(first, path)
    replace_lock_file(first, path)
    assert is_replaced(first, path)
    second = open_lock_file(newest_generation(path))
    replace_lock_file(first, path)
    assert not is_replaced(second, path), "who was replaced replaces nobody"
    for fd in (first, second):
        os.close(fd)


def test_the_newest_generation_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    old = open_lock_file(path)
    for number in (1, 2, 4):
        (tmp_path / f"a.{number}.lock").touch()
    assert newest_generation(path) == tmp_path / "a.2.lock"
    assert is_replaced(old, path)
    os.close(old)


def test_the_holder_of_a_lock_is_named(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as file:
        assert lock_holders(file.fileno()) == []
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holders(file.fileno()) == [os.getpid()]
    assert describe_processes([os.getpid()]) == f"process {os.getpid()}"
    assert describe_processes([]) == ""


def test_a_process_that_runs_or_is_gone_is_not_suspended() -> None:
    assert not is_suspended(os.getpid())
    assert not is_suspended(999_999_999)
