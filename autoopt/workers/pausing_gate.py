"""The gate of a run that pauses its own work while it measures, instead of waiting for it to end.

A paused call stops together with its time limit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.workers.gate import FOREVER, Gate
from autoopt.workers.lock_files import Passage, lock_holders
from autoopt.workers.process import WorkerProcess

_guard = threading.Lock()
_calls: dict[int, _Call] = {}
"""The calls under way, by thread."""


@dataclass(frozen=True)
class _Call:
    worker: WorkerProcess
    may_pause: Callable[[], bool]


@contextmanager
def pausable(worker: WorkerProcess, may_pause: Callable[[], bool]) -> Iterator[None]:
    """Let other threads pause the call of this thread, within the context and whenever `may_pause()`."""
    thread = threading.get_ident()
    with _guard:
        _calls[thread] = _Call(worker, may_pause)
    try:
        yield
    finally:
        with _guard:
            del _calls[thread]
            # It may have replied just before it was paused.
            worker.resume()


def pause_call_of(thread: int) -> bool:
    """Pause the call of a thread; false if it is in none, or in one that cannot be paused now."""
    with _guard:
        call = _calls.get(thread)
        return call is not None and call.may_pause() and call.worker.pause()


def resume_call_of(thread: int) -> None:
    """Resume the call of a thread, if it is still under way."""
    with _guard:
        if thread in _calls:
            _calls[thread].worker.resume()


TRIES: Final = 10
"""Tries to pause a thread that is inside, but not in a worker's call: it is about to begin one, or to leave."""
TRY_SECONDS: Final = 0.002
"""Seconds between two tries."""


class PausingGate(Gate):
    """A gate that stops the workers of work under way through the same object while it measures.

    The work has no lock meanwhile. It needs none: the measurement is the first in the line until the work goes on. A
    measurer who was as early comes in all the same; the work then goes on beside it rather than wait without end. If
    other processes are inside too, the measurement waits for all, so that no work stands still for long.
    """

    def __init__(self, folder: Path | None = None, *, on_wait: Callable[[], bool] = lambda: True) -> None:
        super().__init__(folder, on_wait=on_wait)
        self._guard = threading.Lock()
        self._work: dict[int, Passage] = {}
        """The passages of work under way, by thread."""

    @contextmanager
    def working(self, until: float = FOREVER) -> Iterator[Passage]:
        thread = threading.get_ident()
        with super().working(until) as passage:
            with self._guard:
                self._work[thread] = passage
            try:
                yield passage
            finally:
                with self._guard:
                    del self._work[thread]

    @contextmanager
    def _own_work_paused(self, passage: Passage) -> Iterator[None]:
        paused: set[int] = set()
        try:
            self._pause_work(passage, paused)
            yield
        finally:
            self._resume_work(paused)

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

    def _resume_work(self, paused: set[int]) -> None:
        with self._guard:
            for thread in paused & self._work.keys():
                self._work[thread].lock_again()
            for thread in paused:
                resume_call_of(thread)
