"""The measurement gate: while one process measures a latency, no other work of autoopt runs on this machine.

A reader-writer lock on two files at one path per machine, whatever AUTOOPT_HOME or the user is. Workers take the gate
shared, a measurer takes it alone. Everybody passes the turnstile first, and a waiting measurer stands in it, so that
new work cannot starve it. The kernel lets go of the locks of a process that ends, in whatever way.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from autoopt.errors import SystemFailure, TimeUp
from autoopt.settings import settings

if TYPE_CHECKING:
    from autoopt.workers.pool import WorkerPool
    from autoopt.workers.process import CallResult

FOREVER = float("inf")
NOTICE_SECONDS = 3.0
"""How long a command waits at the gate before it says so."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def machine_folder() -> Path:
    """The one folder for locks of this machine: `AUTOOPT_GATE`, else /tmp; not TMPDIR, which differs between users."""
    given = settings().gate
    if given is not None:
        return given
    shared = Path("/tmp")
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def said() -> AbstractContextManager[None]:
    """Within: waiting, of which standard error tells after some seconds."""

    def tell() -> bool:
        with suppress(OSError, ValueError):  # nobody listens
            print("waits while another run measures a latency", file=sys.stderr, flush=True)
        return True

    return _after_some_seconds(tell)


def told_of_others(tell: Callable[[str], None]) -> Callable[[], AbstractContextManager[None]]:
    """For a run, whose threads wait for each other all the time: `tell` is called, once, in a thread of its own, when
    one has waited for some seconds and it is another process that is inside."""
    told = threading.Event()

    def notice() -> bool:
        if not Gate.entered and not told.is_set():
            told.set()
            tell("another run is at work on this machine; this one takes turns with it")
        return told.is_set()

    return lambda: nullcontext() if told.is_set() else _after_some_seconds(notice)


@contextmanager
def _after_some_seconds(tell: Callable[[], bool]) -> Iterator[None]:
    """Within: `tell` is called after NOTICE_SECONDS, and again and again until it has told."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(NOTICE_SECONDS) and not tell():
            pass

    threading.Thread(target=watch, name="gate notice", daemon=True).start()
    try:
        yield
    finally:
        over.set()


class Gate:
    """Usable from many threads and processes. A thread that is inside may not enter again, by whichever object."""

    entered: ClassVar[set[int]] = set()
    """The open locks of this process's threads that are inside."""
    _inside = threading.local()

    def __init__(
        self, folder: Path | None = None, *, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """`waiting`: a context to be in while there is waiting, `said` for commands, `told_of_others` for runs."""
        where = folder or machine_folder()
        self._turnstile = where / "autoopt-turnstile.lock"
        self._gate = where / "autoopt-gate.lock"
        self._waiting = waiting

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[None]:
        """Within: ordinary work; many may be here at once, but none while somebody measures or waits for it.

        Args:
            until: how long to wait for that, on `time.monotonic`.

        Raises:
            TimeUp: the gate did not open until then.
        """
        with self._once():
            turnstile = self._lock(self._turnstile, fcntl.LOCK_EX, until)
            try:
                gate = self._lock(self._gate, fcntl.LOCK_SH, until)
            finally:
                os.close(turnstile)
            with self._within(gate):
                yield

    @contextmanager
    def measuring(self, until: float = FOREVER) -> Iterator[None]:
        """Within: nobody else works or measures. Waits for the work that runs; keeps new work out meanwhile.

        Args and errors as of `working`.
        """
        with self._once():
            turnstile = self._lock(self._turnstile, fcntl.LOCK_EX, until)
            try:
                with self._within(self._lock(self._gate, fcntl.LOCK_EX, until)):
                    yield
            finally:
                os.close(turnstile)

    @contextmanager
    def _within(self, gate: int) -> Iterator[None]:
        self.entered.add(gate)
        try:
            yield
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

    def _lock(self, path: Path, kind: int, until: float) -> int:
        """An open descriptor that holds the lock; again if the file was replaced while waiting."""
        while True:
            with ExitStack() as otherwise:
                fd = _open(path)
                otherwise.callback(os.close, fd)
                try:
                    fcntl.flock(fd, kind | fcntl.LOCK_NB)
                except BlockingIOError:
                    with self._waiting():
                        if until == FOREVER:
                            fcntl.flock(fd, kind)
                        else:
                            otherwise.pop_all()  # the waiter's own now
                            if not _Waiter(fd, kind).came_in(until):
                                raise TimeUp("the run's time was up before the machine was free for it") from None
                            otherwise.callback(os.close, fd)
                if _same_file(fd, path):
                    otherwise.pop_all()
                    return fd


class _Waiter:
    """Waits for a lock in a thread of its own, in the kernel's queue as everybody else, and can be left there."""

    def __init__(self, fd: int, kind: int) -> None:
        self._fd, self._kind = fd, kind
        self._in, self._left, self._guard = threading.Event(), False, threading.Lock()
        threading.Thread(target=self._wait, name="gate", daemon=True).start()

    def came_in(self, until: float) -> bool:
        """Whether it has the lock; if not it goes on waiting, and closes the descriptor when it has."""
        try:
            self._in.wait(max(0.0, until - time.monotonic()))
        finally:  # also when interrupted
            with self._guard:
                self._left = not self._in.is_set()
        return not self._left

    def _wait(self) -> None:
        fcntl.flock(self._fd, self._kind)
        with self._guard:
            if self._left:
                os.close(self._fd)
            self._in.set()


def gated_call(
    pool: WorkerPool,
    function: str,
    payload: dict[str, Any],
    timeout: float | None = 60.0,
    memory: int | None = None,
) -> CallResult:
    """`pool.call` behind the gate, for work outside of a run's trials; says so where it waits for long."""
    with Gate(waiting=said).working():
        return pool.call(function, payload, timeout, memory)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    """Open the lock file for reading, all that flock needs, and make it first where there is none.

    In a folder that everybody may write to, a link or another kind of file could be somebody's trap: refused.
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
                raise SystemFailure(f"cannot make the lock file: {error.strerror}", where=str(path)) from error
            os.fchmod(fd, 0o644)  # for all users, whatever the umask
            return fd
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise SystemFailure(f"unusable lock file: {reason}", where=str(path), remedy="remove it") from error
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return fd
        os.close(fd)
        raise SystemFailure("unusable lock file: not a regular file of one name", where=str(path), remedy="remove it")
