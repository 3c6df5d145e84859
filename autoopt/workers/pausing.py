"""Pausing the calls of other threads: their workers stop, and their time limits with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
