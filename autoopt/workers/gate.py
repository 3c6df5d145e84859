"""The measurement gate: while one process measures a latency, no other work of autoopt runs on this machine.

A reader-writer lock made of two files at one path per machine, whatever AUTOOPT_HOME or the user is. Workers hold the
gate shared, a measurer holds it alone. Everybody passes the turnstile first, and a waiting measurer stays in it, so
that new work cannot starve it. The kernel releases the locks of a process that ends in any way. Suspended holders
(Ctrl-Z) are passed over: who waits replaces the lock file, and a holder finds that out when it leaves
(`Passage.passed_over`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from autoopt.errors import SystemFailure, TimeUp
from autoopt.settings import settings
from autoopt.workers.lock_holders import describe_processes, is_suspended, lock_holders

FOREVER = float("inf")
NOTICE_SECONDS = 3.0
"""A command waits this long at the gate before it reports that."""
SUSPENDED_SECONDS = 5.0
"""Holders that are suspended are passed over after this time."""
CHECK_SECONDS = 1.0
"""Interval of the checks for suspended holders."""
GATE_FILE = "autoopt-gate.lock"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def machine_folder() -> Path:
    """The one folder for locks of this machine: `AUTOOPT_GATE`, else /tmp; not TMPDIR, which differs between users."""
    folder = settings().gate
    if folder is not None:
        return folder
    shared = Path("/tmp")
    if shared.is_dir():
        return shared
    return Path(tempfile.gettempdir())


def report_waiting() -> AbstractContextManager[None]:
    """For commands: a context to wait in, which reports a long wait on standard error."""

    def report() -> bool:
        with suppress(OSError, ValueError):  # standard error may be closed
            print(f"waiting while another run measures a latency{_who_is_inside()}", file=sys.stderr, flush=True)
        return True

    return _after_notice_time(report)


def report_other_runs(report: Callable[[str], None]) -> Callable[[], AbstractContextManager[None]]:
    """For a run, whose own threads wait for each other all the time: contexts to wait in.

    `report` is called once, in a thread of its own, when a thread has waited for a while and another process is inside.
    """
    reported = threading.Event()

    def report_once() -> bool:
        if not Gate.entered and not reported.is_set():
            reported.set()
            report(f"another autoopt run is working on this machine{_who_is_inside()}; the two take turns")
        return reported.is_set()

    def context() -> AbstractContextManager[None]:
        if reported.is_set():
            return nullcontext()
        return _after_notice_time(report_once)

    return context


def _who_is_inside() -> str:
    """The processes inside the gate of this machine, in brackets; empty if they are not known."""
    processes = ""
    with suppress(OSError):
        fd = os.open(machine_folder() / GATE_FILE, _FLAGS)
        try:
            processes = describe_processes(lock_holders(fd))
        finally:
            os.close(fd)
    return f" ({processes})" if processes else ""


@contextmanager
def _after_notice_time(report: Callable[[], bool]) -> Iterator[None]:
    """Call `report` every NOTICE_SECONDS within the context, until it returns True."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(NOTICE_SECONDS) and not report():
            pass

    threading.Thread(target=watch, name="gate notice", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@dataclass(frozen=True)
class Passage:
    """A stay inside the gate."""

    path: Path
    """The lock file."""
    fd: int

    @property
    def passed_over(self) -> bool:
        """True if others came in meanwhile because this process was suspended."""
        try:
            return not os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        except FileNotFoundError:
            return True


class Gate:
    """The gate, usable from many threads and processes. A thread inside may not enter again, through any object.

    Args:
        folder: folder of the lock files, by default that of the machine.
        waiting: makes a context to be in while waiting: `report_waiting` for commands, `report_other_runs` for runs.
    """

    entered: ClassVar[set[int]] = set()
    """The open locks of those threads of this process that are inside."""
    _inside = threading.local()

    def __init__(
        self, folder: Path | None = None, *, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        folder = folder or machine_folder()
        self._turnstile = folder / "autoopt-turnstile.lock"
        self._gate = folder / GATE_FILE
        self._waiting = waiting

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[Passage]:
        """Do ordinary work within: many may be inside at once, but none while somebody measures or waits for it.

        Args:
            until: how long to wait for that, on `time.monotonic`.

        Raises:
            TimeUp: the gate did not open in time.
        """
        with self._once():
            with self._locked(self._turnstile, fcntl.LOCK_EX, until):
                gate = self._lock(self._gate, fcntl.LOCK_SH, until)
            with self._within(gate) as passage:
                yield passage

    @contextmanager
    def measuring(self, until: float = FOREVER) -> Iterator[Passage]:
        """Measure within, while nobody else works or measures.

        Waits for work that is running and keeps new work out meanwhile. Args and errors as of `working`.
        """
        exclusive = fcntl.LOCK_EX
        with (
            self._once(),
            self._locked(self._turnstile, exclusive, until),
            self._within(self._lock(self._gate, exclusive, until)) as passage,
        ):
            yield passage

    @contextmanager
    def _within(self, gate: int) -> Iterator[Passage]:
        self.entered.add(gate)
        try:
            yield Passage(self._gate, gate)
        finally:
            self.entered.remove(gate)
            os.close(gate)

    @contextmanager
    def _once(self) -> Iterator[None]:
        held: set[Path] = self._inside.__dict__.setdefault("held", set())
        if self._gate in held:
            raise RuntimeError("this thread is inside the gate already and would wait for itself")
        held.add(self._gate)
        try:
            yield
        finally:
            held.remove(self._gate)

    @contextmanager
    def _locked(self, path: Path, kind: int, until: float) -> Iterator[None]:
        fd = self._lock(path, kind, until)
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self, path: Path, kind: int, until: float) -> int:
        """Open and lock the file; once more if it was replaced while waiting."""
        while True:
            fd = _open(path)
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                with self._waiting():
                    if not _wait_for_lock(fd, path, kind, until):
                        continue
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    return fd
            os.close(fd)


def _wait_for_lock(fd: int, path: Path, kind: int, until: float) -> bool:
    """Wait for a lock, but not for suspended holders.

    Returns:
        False if the file was replaced meanwhile; the descriptor is then of no use.

    Raises:
        TimeUp: The lock did not come in time.
    """
    waiter = _Waiter(fd, kind)
    suspended_since: float | None = None
    while not waiter.acquire(min(until, time.monotonic() + CHECK_SECONDS)):
        now = time.monotonic()
        if now >= until:
            waiter.abandon()
            raise TimeUp("the run's time was up before the machine was free")
        pids = lock_holders(fd)
        if not pids or not all(map(is_suspended, pids)):
            suspended_since = None
        elif suspended_since is None:
            suspended_since = now
        elif now - suspended_since >= SUSPENDED_SECONDS:
            _replace(fd, path)
        if not Passage(path, fd).passed_over:
            continue
        if waiter.abandon():
            return False
    return True


def _replace(fd: int, path: Path) -> None:
    """Remove the lock file with this descriptor, so that the next process makes another one."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Two processes must not each remove a file: the second one would be in use.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not Passage(path, fd).passed_over:
            with suppress(OSError):  # it belongs to another user
                path.unlink()
    finally:
        os.close(folder)


class _Waiter:
    """Waits for a lock in a thread of its own, in the kernel's queue, and can be abandoned there."""

    def __init__(self, fd: int, kind: int) -> None:
        self._fd = fd
        self._kind = kind
        self._acquired = threading.Event()
        self._abandoned = False
        self._guard = threading.Lock()
        threading.Thread(target=self._wait, name="gate", daemon=True).start()

    def acquire(self, until: float) -> bool:
        """Wait for the lock; False if it does not come in time."""
        try:
            return self._acquired.wait(min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))
        except BaseException:  # interrupted
            self.abandon()
            raise

    def abandon(self) -> bool:
        """Have the waiting thread close the descriptor when it gets the lock; False if it has it already."""
        with self._guard:
            self._abandoned = not self._acquired.is_set()
        return self._abandoned

    def _wait(self) -> None:
        fcntl.flock(self._fd, self._kind)
        with self._guard:
            if self._abandoned:
                os.close(self._fd)
            self._acquired.set()


def _open(path: Path) -> int:
    """Open the lock file for reading, all that flock needs; create it if it does not exist.

    In a folder that everybody may write to, a link or another kind of file could be a trap, so it is refused.
    """
    while True:
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            try:
                fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            except OSError as error:
                raise SystemFailure(f"cannot create the lock file: {error.strerror}", where=str(path)) from error
            os.fchmod(fd, 0o644)  # readable by all users, whatever the umask
            return fd
        except OSError as error:
            reason = error.strerror
            if error.errno == errno.ELOOP:
                reason = "it is a link"
            raise SystemFailure(f"unusable lock file: {reason}", where=str(path), remedy="remove it") from error
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return fd
        os.close(fd)
        reason = "not a regular file with one name"
        raise SystemFailure(f"unusable lock file: {reason}", where=str(path), remedy="remove it")
