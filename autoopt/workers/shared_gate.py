"""The gate of a run whose passes continue on other cores while it measures (`isolation: shared`)."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from autoopt.workers.gate import FOREVER, Gate, Passage
from autoopt.workers.lock_files import newest_generation, open_lock_file


class SharedGate(Gate):
    """A gate through which work of the same object passes while it measures. To all others it is like any other gate.

    Work under way has no lock while the object measures. It needs none: the measurement holds the turnstile, so nobody
    else enters.
    """

    def __init__(
        self, folder: Path | None = None, *, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(folder, waiting=waiting)
        self._guard = threading.Lock()
        self._work: set[int] = set()
        """Descriptors of the lock file, one for each piece of work under way."""
        self._measures = False

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[Passage]:
        patience = self._patience(until)
        with self._once():
            work = self._work_beside_measurement()
            if work is None:
                with self._locked(self._turnstile, fcntl.LOCK_EX, patience):
                    work = self._lock(self._gate, fcntl.LOCK_SH, patience)
                    self._work.add(work)
            with self._within(work) as passage:
                try:
                    yield passage
                finally:
                    with self._guard:
                        self._work.remove(work)

    def _work_beside_measurement(self) -> int | None:
        """Open the lock file for a piece of work beside a measurement of this object; None if there is none."""
        with self._guard:
            if not self._measures:
                return None
            work = open_lock_file(newest_generation(self._gate))
            self._work.add(work)
            return work

    @contextmanager
    def measuring(self, until: float = FOREVER) -> Iterator[Passage]:
        patience = self._patience(until)
        with self._once(), self._locked(self._turnstile, fcntl.LOCK_EX, patience):
            self._lock_work(fcntl.LOCK_UN, measures=True)
            try:
                with self._within(self._lock(self._gate, fcntl.LOCK_EX, patience)) as passage:
                    yield passage
            finally:
                self._lock_work(fcntl.LOCK_SH, measures=False)

    def _lock_work(self, kind: int, *, measures: bool) -> None:
        """Lock or unlock all work under way; at once, because this thread holds the turnstile."""
        with self._guard:
            self._measures = measures
            for work in self._work:
                fcntl.flock(work, kind)
