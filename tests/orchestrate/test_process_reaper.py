"""Processes end with all their descendants, even if the process that started them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from children import HANG_SECONDS, start_process
from watching import all_gone

from autoopt.orchestrate.server import process_reaper
from autoopt.orchestrate.server.process_reaper import DONE, ProcessReaper, end_groups, reap

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(0, flush=True)
time.sleep(600)
"""
Started = subprocess.Popen[str]


def start(program: str) -> tuple[Started, int]:
    """Start a process group; the process, and the id that it prints."""
    process = start_process([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    return process, int(process.stdout.readline())


@pytest.fixture
def family() -> Iterator[tuple[Started, int]]:
    """A process and its child in another session."""
    process, child = start(FAMILY)
    yield process, child
    process.kill()
    process.wait()
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def test_a_group_ends_with_descendants_in_other_sessions(family: tuple[Started, int]) -> None:
    process, child = family
    end_groups([process.pid])
    assert all_gone([process.pid, child])


LATE = """
import signal, subprocess, sys, time
def end(*_):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(CHILD, "w") as file:
        file.write(str(child.pid))
    time.sleep(0.5)
    sys.exit()
signal.signal(signal.SIGINT, end)
print(0, flush=True)
time.sleep(600)
"""


def test_what_is_started_during_the_end_ends_too(tmp_path: Path) -> None:
    file = tmp_path / "child"
    process, _ = start(f"CHILD = {str(file)!r}\n{LATE}")
    end_groups([process.pid])
    assert all_gone([process.pid, int(file.read_text())])


def test_a_process_that_ignores_signals_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_reaper, "GRACE_SECONDS", 0.2)
    process, _ = start(STUBBORN)
    end_groups([process.pid])
    assert all_gone([process.pid])


def test_a_group_that_has_ended_is_no_error() -> None:
    end_groups([2**22 + 1])
    end_groups([])


def test_the_reaper_ends_what_is_registered_when_its_input_closes(family: tuple[Started, int]) -> None:
    process, child = family
    reap([f"{process.pid} 0\n", f"{2**22 + 1} 1\n"])
    assert all_gone([process.pid, child])


def test_the_reaper_ends_nothing_after_a_release(family: tuple[Started, int]) -> None:
    process, _ = family
    reap([f"{process.pid} 0\n", DONE])
    assert process.poll() is None


OWNER = """
import sys
from autoopt.orchestrate.server.process_reaper import ProcessReaper
reaper = ProcessReaper()
reaper.register(int(sys.argv[1]))
print(reaper._process.pid, flush=True)
input()
"""


def test_a_killed_owner_leaves_nothing_behind(family: tuple[Started, int]) -> None:
    process, child = family
    command = [sys.executable, "-c", OWNER, str(process.pid)]
    owner = start_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    reaper = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    assert process.wait(HANG_SECONDS) != 0
    assert all_gone([child, reaper])


def test_a_released_reaper_ends(family: tuple[Started, int]) -> None:
    process, _ = family
    reaper = ProcessReaper()
    reaper.register(process.pid, rank=1)
    reaper.release()
    assert process.poll() is None
