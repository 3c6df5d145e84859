"""Who holds a lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from autoopt.workers.lock_holders import describe_processes, is_suspended, lock_holders


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
