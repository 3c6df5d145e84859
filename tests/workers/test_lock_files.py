"""Lock files: generations where one cannot be removed."""

from __future__ import annotations

import os
from pathlib import Path

from autoopt.workers.lock_files import is_replaced, newest_generation, open_lock_file, replace_lock_file


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
