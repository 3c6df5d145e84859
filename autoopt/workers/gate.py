"""The measurement gate: while one process measures a latency, no other work of autoopt runs on this machine.

A reader-writer lock made of two files at one path per machine, whatever AUTOOPT_HOME or the user is. Two, because a
lock of a file names its holder and needs no permission to write; locks of parts of one file do not. Workers hold the
gate shared, a measurer holds it alone. Everybody passes the turnstile first, and a waiting measurer stays in it, so
that new work cannot starve it. Whose run has measured for less time lately passes the turnstile first, so a run that
has not measured its source yet waits for one measurement at most. The kernel releases the locks of a process that ends
in any way. Suspended holders (Ctrl-Z) are passed over: who waits replaces the lock file, or where that belongs to
another user, begins the next generation of it (`autoopt-gate.1.lock`, ...). A holder finds that out when it leaves
(`Passage.passed_over`).
"""

from __future__ import annotations

import fcntl
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from autoopt.errors import InputError, TimeUp
from autoopt.settings import settings
from autoopt.workers.lock_files import (
    LOCK_FLAGS,
    describe_processes,
    is_anybody_before,
    is_replaced,
    is_suspended,
    lock_holders,
    newest_generation,
    open_lock_file,
    place_in_line,
    replace_lock_file,
)

FOREVER = float("inf")
NOTICE_SECONDS = 3.0
"""A command waits this long at the gate before it reports that."""
SUSPENDED_SECONDS = 5.0
"""Holders that are suspended are passed over after this time."""
CHECK_SECONDS = 1.0
"""Interval of the checks for suspended holders."""
HALF_LIFE = 60.0
"""Seconds after which a measurement counts half for its run's place in the line: a long run must not starve later."""
STEP_ASIDE_SECONDS, LOOK_SECONDS = 1.0, 0.01
"""Shortest time for which the turnstile is left to those who go first, and the interval of looks whether they came."""
GATE_FILE = "autoopt-gate.lock"
_deadline: ContextVar[float] = ContextVar("deadline", default=FOREVER)


def machine_folder() -> Path:
    """The one folder for locks of this machine: `AUTOOPT_GATE`, else /tmp; not TMPDIR, which differs between users.

    Raises:
        InputError: `AUTOOPT_GATE` names no folder.
    """
    folder = settings().gate
    if folder is not None:
        if not folder.is_dir():
            # A new folder could be another one than that of the other containers.
            raise InputError(
                "no such folder", where=f"AUTOOPT_GATE={folder}", remedy="create it, or unset AUTOOPT_GATE"
            )
        return folder
    shared = Path("/tmp")
    if shared.is_dir():
        return shared
    return Path(tempfile.gettempdir())


def _print_notice(text: str) -> None:
    with suppress(OSError, ValueError):  # standard error may be closed
        print(text, file=sys.stderr, flush=True)


_notice: ContextVar[Callable[[str], None]] = ContextVar("notice", default=_print_notice)


@contextmanager
def notices_to(report: Callable[[str], None]) -> Iterator[None]:
    """Report the first long wait of this thread within the context to `report` instead of standard error."""
    reported = threading.Event()

    def report_once(text: str) -> None:
        if not reported.is_set():
            reported.set()
            report(text)

    token = _notice.set(report_once)
    try:
        yield
    finally:
        _notice.reset(token)


def report_waiting() -> AbstractContextManager[None]:
    """For commands: a context to wait in, which reports a long wait."""
    notice = _notice.get()

    def report() -> bool:
        notice(f"waiting while another run measures a latency{_who_is_inside()}")
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
        fd = os.open(newest_generation(machine_folder() / GATE_FILE), LOCK_FLAGS)
        try:
            processes = describe_processes(lock_holders(fd))
        finally:
            os.close(fd)
    return f" ({processes})" if processes else ""


@contextmanager
def deadline(until: float) -> Iterator[None]:
    """Wait no longer than `until` (on `time.monotonic`) at any gate within the context, in this thread.

    Raises:
        TimeUp: A gate did not open in time.
    """
    token = _deadline.set(min(until, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


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
        return is_replaced(self.fd, self.path)


class Gate:
    """The gate of one run, usable from many threads and processes. A thread inside may not enter again.

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
        self._measured, self._measured_until = 0.0, 0.0

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[Passage]:
        """Do ordinary work within: many may be inside at once, but none while somebody measures or waits for it.

        It waits for that until `until`, on `time.monotonic`.

        Raises:
            TimeUp: the gate did not open in time.
        """
        patience = self._patience(until)
        with self._once():
            with self._turn(patience):
                gate = self._lock(self._gate, fcntl.LOCK_SH, patience)
            with self._within(gate) as passage:
                yield passage

    @contextmanager
    def brief_work(self, patience: float) -> Iterator[None]:
        """Do a little ordinary work within, after waiting as for `working`, but for at most `patience` seconds.

        Then it continues beside the measurement, for which a command at its end must not wait.
        """
        with ExitStack() as stay:
            with suppress(TimeUp):
                stay.enter_context(self.working(time.monotonic() + patience))
            yield

    @contextmanager
    def measuring(self, until: float = FOREVER) -> Iterator[Passage]:
        """Measure within, while nobody else works or measures.

        Waits for work that is running and keeps new work out meanwhile. Args and errors as of `working`.
        """
        patience = self._patience(until)
        with (
            self._once(),
            self._turn(patience),
            self._own_work_paused(),
            self._within(self._lock(self._gate, fcntl.LOCK_EX, patience)) as passage,
        ):
            began = time.monotonic()
            try:
                yield passage
            finally:
                now = time.monotonic()
                self._measured, self._measured_until = self._measured_lately(now) + now - began, now

    def _measured_lately(self, now: float) -> float:
        """The seconds for which this run has measured, of which those before the last HALF_LIFE count less."""
        return self._measured * math.exp2((self._measured_until - now) / HALF_LIFE)

    def _own_work_paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _patience(self, until: float) -> Patience:
        return Patience(min(until, _deadline.get()))

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
    def _turn(self, patience: Patience) -> Iterator[None]:
        """Be in the turnstile, after those who wait there and whose runs have measured for less time lately.

        Who is suspended keeps a place in the line, so it lets others pass for STEP_ASIDE_SECONDS and for as long as its
        own run has measured at most.
        """
        measured = self._measured_lately(time.monotonic())
        with place_in_line(self._turnstile, measured):
            turn = self._lock(self._turnstile, fcntl.LOCK_EX, patience)
            until = min(patience.until, time.monotonic() + STEP_ASIDE_SECONDS + measured)
            while is_anybody_before(turn, measured) and time.monotonic() < until:
                os.close(turn)
                time.sleep(LOOK_SECONDS)
                turn = self._lock(self._turnstile, fcntl.LOCK_EX, patience)
        try:
            yield
        finally:
            os.close(turn)

    def _lock(self, path: Path, kind: int, patience: Patience) -> int:
        """Open and lock the file; once more if it was replaced while waiting."""
        while True:
            fd = open_lock_file(newest_generation(path))
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                with self._waiting():
                    if not _wait_for_lock(fd, path, kind, patience):
                        continue
            if not is_replaced(fd, path):
                return fd
            os.close(fd)


class Patience:
    """The limits of one visitor's waiting, for all locks on its way together."""

    def __init__(self, until: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait until a time on the clock."""
        self.until = until
        self._clock = clock
        self._suspended: dict[int, float] = {}
        """Times at which processes that are still suspended were first seen so."""

    def is_over(self, pids: Sequence[int]) -> bool:
        """True if all these holders of a lock have been suspended for a while."""
        now = self._clock()
        self._suspended = {pid: self._suspended.get(pid, now) for pid in pids if is_suspended(pid)}
        if not pids or len(self._suspended) < len(pids):
            return False
        return now - max(self._suspended.values()) >= SUSPENDED_SECONDS


def _wait_for_lock(fd: int, path: Path, kind: int, patience: Patience) -> bool:
    """Wait for a lock, but not for suspended holders.

    Returns:
        False if the file was replaced meanwhile; the descriptor is then of no use.

    Raises:
        TimeUp: The lock did not come in time.
    """
    waiter = _Waiter(fd, kind)
    pause = 0.0  # the holders of the last lock may hold this one, too
    while not waiter.acquire(min(patience.until, time.monotonic() + pause)):
        pause = CHECK_SECONDS
        if time.monotonic() >= patience.until:
            waiter.abandon()
            raise TimeUp("the run's time was up before the machine was free")
        if patience.is_over(lock_holders(fd)):
            replace_lock_file(fd, path)
        if not is_replaced(fd, path):
            continue
        if waiter.abandon():
            return False
    return True


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
