"""The gate, with real processes. Order is made by pipes and by what the kernel says of the locks, not by waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import HANG_SECONDS

from autoopt.errors import InputError, SystemFailure, TimeUp
from autoopt.settings import settings
from autoopt.workers import Gate, gate
from autoopt.workers.gate import FOREVER, GATE_FILE, Patience, deadline, machine_folder
from autoopt.workers.lock_files import Passage, is_suspended

PERSON = """
import os, sys, time
from pathlib import Path
from autoopt.workers import gate
name, kind, folder, events = sys.argv[1:]
events = os.open(events, os.O_WRONLY | os.O_APPEND)
gate.NOTICE_SECONDS = 0.0
gate = gate.Gate(Path(folder), on_wait=lambda: bool(Path(folder, f"{name} waits").touch()) or True)
earlier, _, kind = kind.rpartition(" ")
if earlier:
    with gate.measuring():
        until = time.monotonic() + float(earlier)
        while time.monotonic() < until:
            pass
    os.write(events, f"{name} ready\\n".encode())
    sys.stdin.readline()
with getattr(gate, kind)() as passage:
    os.write(events, f"{name} in\\n".encode())
    sys.stdin.readline()
    how = " passed over" if passage.passed_over else ""
    os.write(events, f"{name} out{how}\\n".encode())
"""


class Stage:
    """People who enter the gate, and what they did, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "events"
        self.log.touch()
        self.people: dict[str, subprocess.Popen[bytes]] = {}

    def enter(self, name: str, kind: str, *within: str, at: str = "") -> subprocess.Popen[bytes]:
        """`within`: a command that carries out the rest of its arguments; `at`: what the folder is called there."""
        folder = at or str(self.folder)
        command = [*within, sys.executable, "-c", PERSON, name, kind, folder, f"{folder}/{self.log.name}"]
        self.people[name] = subprocess.Popen(command, stdin=subprocess.PIPE)
        return self.people[name]

    def go(self, name: str) -> None:
        """Have `name`, who has measured earlier, enter."""
        pipe = self.people[name].stdin
        assert pipe is not None
        pipe.write(b"\n")
        pipe.flush()

    def leave(self, name: str) -> None:
        self.people[name].communicate(b"\n", timeout=HANG_SECONDS)

    def events(self) -> list[str]:
        return self.log.read_text().splitlines()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never happened; events: {self.events()}"
            os.sched_yield()

    def until_in(self, name: str) -> None:
        self.until(lambda: f"{name} in" in self.events())

    def until_stopped(self, name: str) -> None:
        """Until `name` has looked and waits, or is in."""
        self.until(lambda: f"{name} in" in self.events() or (self.folder / f"{name} waits").exists())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    for person in made.people.values():
        person.kill()
        person.communicate()


def test_waiting_measurer_keeps_new_work_out(stage: Stage) -> None:
    stage.enter("work", "working")
    stage.until_in("work")
    stage.enter("measurer", "measuring")
    stage.until_stopped("measurer")
    stage.enter("late", "working")
    stage.until_stopped("late")
    assert stage.events() == ["work in"]
    stage.leave("work")
    stage.until_in("measurer")
    stage.leave("measurer")
    stage.until_in("late")
    assert stage.events() == ["work in", "work out", "measurer in", "measurer out", "late in"]


@pytest.mark.parametrize("kind", ["working", "measuring"])
def test_whose_run_has_measured_for_less_time_goes_first(stage: Stage, kind: str) -> None:
    for name, seconds in (("long", 1.0), ("short", 0.02)):
        stage.enter(name, f"{seconds} {kind}")
        stage.until(lambda: f"{name} ready" in stage.events())  # noqa: B023
    stage.enter("first", "measuring")
    stage.until_in("first")
    for name in ("long", "short"):
        stage.go(name)
        stage.until_stopped(name)
    stage.enter("new", "measuring")
    stage.until_stopped("new")
    for name in ("first", "new", "short", "long"):
        stage.until_in(name)
        stage.leave(name)
    happened = [event for event in stage.events() if event.endswith(" in")]
    assert happened == ["first in", "new in", "short in", "long in"]


def test_nobody_lets_others_pass_for_longer_than_its_run_has_measured(stage: Stage) -> None:
    stage.enter("measurer", "0.02 measuring")
    stage.until(lambda: "measurer ready" in stage.events())
    nobody = Passage(stage.folder / GATE_FILE, 0.0, alone=True)
    stage.go("measurer")
    stage.until_in("measurer")
    nobody.close()


def test_one_measurer_at_a_time(stage: Stage) -> None:
    stage.enter("a", "measuring")
    stage.until_in("a")
    stage.enter("b", "measuring")
    stage.until_stopped("b")
    assert stage.events() == ["a in"]
    stage.leave("a")
    stage.until_in("b")
    assert stage.events() == ["a in", "a out", "b in"]


def test_containers_with_a_folder_in_common_measure_one_at_a_time(stage: Stage) -> None:
    """In namespaces of their own (mounts, processes, host name, network), as containers are; the folder is a volume."""
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc", "--net"]
    if os.geteuid() != 0 or subprocess.run([*spaces, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces need root and util-linux")
    container = [*spaces, "sh", "-c", f'mount --bind {stage.folder} /mnt && exec "$@"', "sh"]
    stage.enter("a", "measuring", *container, at="/mnt")
    stage.until_in("a")
    stage.enter("b", "measuring", *container, at="/mnt")
    stage.until_stopped("b")
    stage.enter("host", "working")
    stage.until_stopped("host")
    assert stage.events() == ["a in"]
    stage.leave("a")
    stage.until_in("b")
    assert stage.events() == ["a in", "a out", "b in"]
    stage.leave("b")
    stage.until_in("host")


@pytest.mark.parametrize("kind", ["working", "measuring"])
def test_killed_holder_lets_go(stage: Stage, kind: str) -> None:
    holder = stage.enter("holder", kind)
    stage.until_in("holder")
    stage.enter("next", "measuring")
    stage.until_stopped("next")
    holder.kill()
    stage.until_in("next")


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    gate, inside, most = Gate(tmp_path), [], []

    def measure() -> None:
        for _ in range(50):
            with gate.measuring():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200
    assert max(most) == 1


@pytest.mark.parametrize("kind", ["working", "measuring"])
def test_who_waits_no_longer_than_its_time_is_not_in_the_way_afterwards(stage: Stage, kind: str) -> None:
    stage.enter("measurer", "measuring")
    stage.until_in("measurer")
    waiting = getattr(Gate(stage.folder), kind)
    with pytest.raises(TimeUp, match="before the machine was free"), waiting(time.monotonic() + 0.1):
        raise AssertionError("came in")
    stage.leave("measurer")
    stage.enter("next", "measuring")
    stage.until_in("next")
    stage.leave("next")
    with waiting(time.monotonic() + HANG_SECONDS):
        stage.enter("other", "measuring")
        stage.until_stopped("other")
    stage.until_in("other")
    assert stage.events() == ["measurer in", "measurer out", "next in", "next out", "other in"]


class Looked(set[int]):
    """The threads that are inside; `often`: they have been looked at several times."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self._times = threading.Event(), 0

    def __len__(self) -> int:
        self._times += 1
        if self._times > 3:
            self.often.set()
        return super().__len__()


def test_a_run_says_once_that_it_waits_for_another_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "NOTICE_SECONDS", 0.001)
    told: list[str] = []
    waiting = gate.report_other_runs(told.append)

    def wait() -> None:
        with Gate(stage.folder, on_wait=waiting).measuring():
            pass

    looked = Looked()
    monkeypatch.setattr(Gate, "entered", looked)
    monkeypatch.setattr(gate, "machine_folder", lambda: stage.folder)
    stage.enter("other", "working")
    stage.until_in("other")
    run = threading.Thread(target=wait)
    with Gate(stage.folder).working():
        run.start()
        assert looked.often.wait(HANG_SECONDS)
        assert told == [], "a thread of its own is inside"
    stage.until(lambda: bool(told))
    inside = f" (process {stage.people['other'].pid})"
    stage.leave("other")
    run.join()
    assert told == [f"another autoopt run is working on this machine{inside}; the two take turns"]


def test_error_inside_lets_go(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with pytest.raises(KeyError), gate.measuring():
        raise KeyError
    with gate.working():
        pass


def test_entering_twice_is_an_error_not_a_deadlock(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with gate.working(), pytest.raises(RuntimeError, match="inside the gate already"), gate.measuring():
        pass


def test_who_is_inside_finds_out_that_the_lock_file_was_removed(stage: Stage) -> None:
    stage.enter("a", "measuring")
    stage.until_in("a")
    (stage.folder / GATE_FILE).unlink()  # as cleaners of temporary folders do
    stage.enter("b", "measuring")
    stage.until_in("b")
    stage.enter("c", "measuring")
    stage.until_stopped("c")
    stage.leave("a")
    stage.leave("b")
    stage.until_in("c")
    assert stage.events() == ["a in", "b in", "a out passed over", "b out", "c in"]


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "pipe"])
def test_traps_in_the_shared_folder_are_refused(tmp_path: Path, kind: str) -> None:
    victim, trap = tmp_path / "victim", tmp_path / "autoopt-gate.lock"
    victim.write_text("precious")
    make = {
        "link": lambda: trap.symlink_to(victim),
        "hard link": lambda: trap.hardlink_to(victim),
        "folder": trap.mkdir,
        "pipe": lambda: os.mkfifo(trap),
    }
    make[kind]()
    with pytest.raises(SystemFailure, match=r"autoopt-gate\.lock: unusable lock file"), Gate(tmp_path).measuring():
        pass
    assert victim.read_text() == "precious"


def test_readable_by_all_users_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with Gate(tmp_path).measuring():
            pass
    finally:
        os.umask(before)
    assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {
        GATE_FILE: 0o644,
    }


def test_one_path_per_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOOPT_GATE", raising=False)
    settings.cache_clear()
    before = machine_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path))
    settings.cache_clear()
    assert machine_folder() == before
    monkeypatch.setenv("AUTOOPT_GATE", str(tmp_path))
    settings.cache_clear()
    assert machine_folder() == tmp_path
    monkeypatch.setenv("AUTOOPT_GATE", str(tmp_path / "missing"))
    settings.cache_clear()
    with pytest.raises(InputError, match="missing: no such folder; create it, or unset AUTOOPT_GATE"):
        Gate()
    settings.cache_clear()


def suspend(stage: Stage, name: str) -> None:
    """As Ctrl-Z does."""
    process = stage.people[name]
    process.send_signal(signal.SIGSTOP)
    stage.until(lambda: is_suspended(process.pid))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "SUSPENDED_SECONDS", 0.0)
    monkeypatch.setattr(gate, "CHECK_SECONDS", 0.01)


@pytest.mark.parametrize("kind", ["working", "measuring"])
def test_a_suspended_holder_is_passed_over_and_finds_out(stage: Stage, kind: str, impatient: None) -> None:
    stage.enter("holder", kind)
    stage.until_in("holder")
    suspend(stage, "holder")
    with Gate(stage.folder).measuring(time.monotonic() + HANG_SECONDS) as passage:
        assert not passage.passed_over
        stage.people["holder"].send_signal(signal.SIGCONT)
        stage.leave("holder")
    assert stage.events() == ["holder in", "holder out passed over"]


def test_a_suspended_holder_beside_a_living_one_is_not_passed_over(stage: Stage, impatient: None) -> None:
    for name in ("suspended", "living"):
        stage.enter(name, "working")
        stage.until_in(name)
    suspend(stage, "suspended")
    with pytest.raises(TimeUp), Gate(stage.folder).measuring(time.monotonic() + 0.2):
        raise AssertionError("came in")
    stage.leave("living")
    with Gate(stage.folder).measuring(time.monotonic() + HANG_SECONDS):
        pass


def test_patience_with_a_suspended_process_counts_for_all_its_locks(stage: Stage) -> None:
    stage.enter("holder", "working")
    stage.until_in("holder")
    suspend(stage, "holder")
    holder, now = stage.people["holder"].pid, 0.0
    suspended: dict[int, float] = {}
    patience = Patience(FOREVER, suspended=suspended, clock=lambda: now)
    assert not patience.passes_over([holder])
    now = gate.SUSPENDED_SECONDS
    assert patience.passes_over([holder]), "in the line"
    assert patience.passes_over([holder]), "at the lock"
    assert not patience.passes_over([holder, os.getpid()]), "another one works"
    later = Patience(FOREVER, suspended=suspended, clock=lambda: now)
    assert later.passes_over([holder]), "at the next visit of the run"
    stage.people["holder"].send_signal(signal.SIGCONT)
    stage.until(lambda: not is_suspended(holder))
    assert not later.passes_over([holder]), "it goes on"


def test_a_deadline_holds_at_every_gate_within(stage: Stage) -> None:
    stage.enter("measurer", "measuring")
    stage.until_in("measurer")
    with pytest.raises(TimeUp), deadline(time.monotonic() + 0.2), Gate(stage.folder).working():
        raise AssertionError("came in")
    stage.leave("measurer")
    with deadline(time.monotonic() + HANG_SECONDS), Gate(stage.folder).working():
        pass


def test_brief_work_goes_on_beside_a_measurement_that_takes_long(stage: Stage) -> None:
    stage.enter("measurer", "measuring")
    stage.until_in("measurer")
    with Gate(stage.folder).brief_work(patience=0.05):
        assert stage.events() == ["measurer in"]
    stage.leave("measurer")
    with Gate(stage.folder).brief_work(patience=HANG_SECONDS):
        stage.enter("next", "measuring")
        stage.until_stopped("next")
        assert "next in" not in stage.events()
    stage.until_in("next")


AS_NOBODY = """
import os, sys
from pathlib import Path
from autoopt.workers import gate
from autoopt.workers.lock_files import describe_processes
folder = Path(sys.argv[1])
gate.SUSPENDED_SECONDS, gate.CHECK_SECONDS = 0.0, 0.01
os.setegid(65534)
os.seteuid(65534)
for kind in ("measuring", "working"):
    with getattr(gate.Gate(folder), kind)() as passage:
        print(kind, passage.passed_over, describe_processes([int(sys.argv[2])]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("kind", ["working", "measuring"])
def test_a_suspended_holder_of_another_user_is_passed_over(kind: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)  # as /tmp: nobody may remove the files of others
        stage = Stage(folder)
        try:
            holder = stage.enter("holder", kind)
            stage.until_in("holder")
            suspend(stage, "holder")
            command = [sys.executable, "-c", AS_NOBODY, name, str(holder.pid)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
            who = f"process {holder.pid} of user root (suspended)"
            assert done.stdout == f"measuring False {who}\nworking False {who}\n"
            holder.send_signal(signal.SIGCONT)
            stage.leave("holder")
            assert stage.events() == ["holder in", "holder out passed over"]
        finally:
            for person in stage.people.values():
                person.kill()
                person.communicate()
