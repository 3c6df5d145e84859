"""The measurement gate: while one process measures a latency, no other work of autoopt runs on this machine.

A reader-writer lock in one file at one path per machine, whatever AUTOOPT_HOME or the user is. Workers hold its `flock`
shared, a measurer holds it alone. Who waits has a place in the line that is kept in the same file (`lock_files`), so a
waiting measurer keeps new work out and cannot be starved by it. Whose run has measured for less time lately goes first,
so a run that has not measured its source yet waits for one measurement at most. The kernel releases the locks of a
process that ends in any way. Suspended processes (Ctrl-Z) are passed over: their places do not count, and where they
hold the lock, who waits replaces the file, or where that belongs to another user, begins the next generation of it
(`autoopt-gate.1.lock`, ...). A holder finds that out when it leaves (`Passage.passed_over`).
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

from autoopt.errors import InputError, TimeUp
from autoopt.settings import settings
from autoopt.workers.lock_files import (
    INSIDE,
    LOCK_FLAGS,
    Passage,
    describe_processes,
    is_suspended,
    lock_holders,
    newest_generation,
    process_at,
)
from autoopt.workers.process import WorkerProcess

FOREVER = float("inf")
NOTICE_SECONDS = 3.0
"""A command waits this long at the gate before it reports that."""
SUSPENDED_SECONDS = 5.0
"""Suspended processes are passed over after this time."""
CHECK_SECONDS = 1.0
"""Interval of the checks for suspended processes and a new lock file."""
LOOK_SECONDS = 0.02
"""Interval in which a visitor looks whether other processes let it enter: the kernel wakes nobody who waits in a line.
Threads of one process tell each other, so those of the process that measures are still."""
HALF_LIFE = 60.0
"""Seconds after which a measurement counts half for its run's place in the line: a long run must not starve later."""
STEP_ASIDE_SECONDS = 1.0
"""Shortest time for which a visitor lets those pass who go first."""
TRIES = 10
"""Tries to pause a thread that is inside, but not in a worker's call: it is about to begin one, or to leave."""
TRY_SECONDS = 0.002
"""Seconds between two tries."""
GATE_FILE = "autoopt-gate.lock"
_deadline: ContextVar[float] = ContextVar("deadline", default=FOREVER)
_calls_guard = threading.Lock()
_calls: dict[int, tuple[WorkerProcess, Callable[[], bool]]] = {}
"""By thread, the worker of the call that is under way, and whether it may be paused now."""


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


def report_waiting() -> bool:
    """For commands: report a long wait."""
    _notice.get()(f"waiting while another run measures a latency{_who_is_inside()}")
    return True


def report_other_runs(report: Callable[[str], None]) -> Callable[[], bool]:
    """For a run, whose own threads wait for each other all the time: report once that another process is inside."""
    reported = threading.Event()

    def report_once() -> bool:
        if not Gate.entered and not reported.is_set():
            reported.set()
            report(f"another autoopt run is working on this machine{_who_is_inside()}; the two take turns")
        return reported.is_set()

    return report_once


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


class Gate:
    """The gate of one run, usable from many threads and processes. A thread inside may not enter again.

    A measurement pauses the workers of this run's work. The work gives its lock up meanwhile: the measurement stays
    first in the line until the work goes on. If another measurement enters at that moment, the work goes on beside it,
    since waiting might never end. If other processes work too, the measurement waits for all, so that no work is paused
    for long. The time limit of a call does not run while the call is paused.

    Args:
        folder: folder of the lock file, by default that of the machine.
        on_wait: called every `NOTICE_SECONDS` by a thread that waits, until it returns True: `report_waiting` for
            commands, `report_other_runs` for runs.
    """

    entered: ClassVar[set[int]] = set()
    """The open locks of those threads of this process that are inside."""
    _left: ClassVar[threading.Condition] = threading.Condition()
    """Notified when a thread of this process leaves."""
    _inside = threading.local()

    def __init__(self, folder: Path | None = None, *, on_wait: Callable[[], bool] = lambda: True) -> None:
        self._path = (folder or machine_folder()) / GATE_FILE
        self._on_wait = on_wait
        self._measured, self._measured_until = 0.0, 0.0
        self._suspended: dict[int, float] = {}
        self._guard = threading.Lock()
        self._work: dict[int, Passage] = {}
        """The passages of work under way, by thread."""

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[Passage]:
        """Do ordinary work within: many may be inside at once, but none while somebody measures or waits for it.

        It waits for that until `until`, on `time.monotonic`.

        Raises:
            TimeUp: the gate did not open in time.
        """
        patience = Patience(until, self._on_wait, self._suspended)
        thread = threading.get_ident()
        with self._turn(patience, alone=False) as passage, self._within(passage, patience):
            with self._guard:
                self._work[thread] = passage
            try:
                yield passage
            finally:
                with self._guard:
                    del self._work[thread]

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
        patience = Patience(until, self._on_wait, self._suspended)
        with (
            self._turn(patience, alone=True) as passage,
            self._own_work_paused(passage),
            self._within(passage, patience),
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

    @contextmanager
    def _own_work_paused(self, passage: Passage) -> Iterator[None]:
        paused: set[int] = set()
        try:
            self._pause_work(passage, paused)
            yield
        finally:
            with self._guard:
                for thread in paused & self._work.keys():
                    self._work[thread].lock_again()
                for thread in paused:
                    resume_call_of(thread)

    def _pause_work(self, passage: Passage, paused: set[int]) -> None:
        """Pause all work under way that can be paused, and add its threads to `paused`."""
        for _ in range(TRIES):
            with self._guard:
                running = self._work.keys() - paused
                if not running or not set(lock_holders(passage.fd)) <= {os.getpid()}:
                    return
                for thread in running:
                    if pause_call_of(thread):
                        paused.add(thread)
                        self._work[thread].unlock()
                if paused == self._work.keys():
                    return
            time.sleep(TRY_SECONDS)

    @contextmanager
    def _turn(self, patience: Patience, *, alone: bool) -> Iterator[Passage]:
        """Be the first in the line, after those whose runs have measured for less time lately.

        After the measurement that is under way, it lets them pass for STEP_ASIDE_SECONDS and for as long as its own run
        has measured at most. New work waits for measurers that came first as long as they live.
        """
        held: set[Path] = self._inside.__dict__.setdefault("held", set())
        if self._path in held:
            raise RuntimeError("this thread is inside the gate already and would wait for itself")
        measured = self._measured_lately(time.monotonic())
        passage = Passage(self._path, measured, alone=alone)
        held.add(self._path)
        steps_aside_until = FOREVER
        try:
            while before := passage.places_before():
                now = time.monotonic()
                processes = list(map(process_at, before))
                if patience.is_check_due():
                    if patience.passes_over(processes):
                        break
                    passage.follow_file()
                if steps_aside_until == FOREVER and min(before) >= INSIDE:
                    steps_aside_until = now + STEP_ASIDE_SECONDS + measured
                if now >= steps_aside_until:
                    passage.come_first()
                patience.wait(self._left, CHECK_SECONDS if set(processes) == {os.getpid()} else LOOK_SECONDS)
            passage.come_first()
            yield passage
        finally:
            held.remove(self._path)
            passage.close()
            with self._left:
                self._left.notify_all()

    @contextmanager
    def _within(self, passage: Passage, patience: Patience) -> Iterator[None]:
        """Hold the lock; where all who hold it are suspended, replace its file."""
        while not passage.try_lock():
            if patience.is_check_due():
                if patience.passes_over(lock_holders(passage.fd)):
                    passage.replace_file()
                passage.follow_file()
            patience.wait(self._left, LOOK_SECONDS)
        self.entered.add(passage.fd)
        try:
            yield
        finally:
            self.entered.remove(passage.fd)
            passage.unlock()


class Patience:
    """One visitor's waiting: until when, what it reports meanwhile, and which suspended processes it passes over."""

    def __init__(
        self,
        until: float,
        on_wait: Callable[[], bool] = lambda: True,
        suspended: dict[int, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait until a time on the clock, or until the deadline of this thread.

        Visitors with one `suspended` wait once for a suspended process, not at each visit.
        """
        self._until = min(until, _deadline.get())
        self._on_wait = on_wait
        self._clock = clock
        self._report_at = clock() + NOTICE_SECONDS
        self._check_at = 0.0
        self._suspended = {} if suspended is None else suspended
        """Times at which processes that are still suspended were first seen so."""

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        """Wait for so long, or until a change.

        Raises:
            TimeUp: The time is over.
        """
        now = self._clock()
        if now >= self._until:
            raise TimeUp("the run's time was up before the machine was free")
        if now >= self._report_at:
            self._report_at = FOREVER if self._on_wait() else now + NOTICE_SECONDS
        with changed:
            changed.wait(min(seconds, self._until - now))

    def is_check_due(self) -> bool:
        """True every CHECK_SECONDS."""
        now = self._clock()
        is_due = now >= self._check_at
        if is_due:
            self._check_at = now + CHECK_SECONDS
        return is_due

    def passes_over(self, pids: Sequence[int]) -> bool:
        """True if all these processes have been suspended for a while."""
        now = self._clock()
        for pid in set(pids):
            if is_suspended(pid):
                self._suspended.setdefault(pid, now)
            else:
                self._suspended.pop(pid, None)
        return bool(pids) and all(now - self._suspended.get(pid, FOREVER) >= SUSPENDED_SECONDS for pid in pids)


@contextmanager
def pausable(worker: WorkerProcess, may_pause: Callable[[], bool]) -> Iterator[None]:
    """Let other threads pause the call of this thread, within the context and whenever `may_pause()`."""
    thread = threading.get_ident()
    with _calls_guard:
        _calls[thread] = (worker, may_pause)
    try:
        yield
    finally:
        with _calls_guard:
            del _calls[thread]
            # It may have replied just before it was paused.
            worker.resume()


def pause_call_of(thread: int) -> bool:
    """Pause the call of a thread; false if it is in none, or in one that cannot be paused now."""
    with _calls_guard:
        if thread not in _calls:
            return False
        worker, may_pause = _calls[thread]
        return may_pause() and worker.pause()


def resume_call_of(thread: int) -> None:
    """Resume the call of a thread, if it is still under way."""
    with _calls_guard:
        if thread in _calls:
            _calls[thread][0].resume()
