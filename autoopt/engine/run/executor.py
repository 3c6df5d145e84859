"""Where trials are carried out: threads of this process, or flow runs made by `autoopt.orchestrate`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

from autoopt.results import TrialResult

Work = Callable[[], TrialResult]


class Executor(Protocol):
    """Carries out trials; `submit` returns at once, the future holds the result. Thread-safe."""

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        """Carry out trial `number`, of the chain with id `chain` and readable `name`. `work` does it in this process
        and stores its end; an executor that has it done elsewhere, from its row in the store, does not call it."""


class InlineExecutor:
    """Trials in `workers` threads of this process; each waits for worker processes, so threads are enough.

    stop: called where an error or an interrupt ends the search, to end the trials under way.
    """

    def __init__(self, workers: int, stop: Callable[[], None]) -> None:
        self._threads = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="trial")
        self._stop = stop

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        return self._threads.submit(work)

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stop()
        self._threads.shutdown(wait=True, cancel_futures=True)
