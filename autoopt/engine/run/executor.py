"""Executors of trials: threads of this process here, flow runs in `autoopt.orchestrate`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, TypeAlias

from autoopt.results import TrialResult

Work: TypeAlias = Callable[[], TrialResult]


class Executor(Protocol):
    """Executes trials. Thread-safe."""

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        """Start a trial and return at once.

        Args:
            chain: Id of the trial's chain.
            name: Readable name of the chain.
            number: Number of the trial.
            work: Executes the trial in this process and stores its end. An executor that has another process do that,
                from the trial's record in the store, does not call it.
        """


class InlineExecutor:
    """Executes trials in threads of this process. Each waits for worker processes, so threads are enough."""

    def __init__(self, workers: int, stop: Callable[[], None]) -> None:
        """Create the threads.

        Args:
            workers: Number of threads.
            stop: Called if an error or an interrupt ends the block, to end the trials under way.
        """
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
