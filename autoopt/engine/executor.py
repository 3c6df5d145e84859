"""Where trials are carried out: threads of this process, or flow runs made by `autoopt.orchestrate`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from autoopt.engine.records import TrialResult

Work = Callable[[], TrialResult]


class Executor(Protocol):
    """Carries out trials; `submit` returns at once, the future holds the result. Thread-safe."""

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        """Carry out trial `number`, of the chain with id `chain` and readable `name`. `work` does it in this process
        and stores its end; an executor that has it done elsewhere, from its row in the store, does not call it."""


class InlineExecutor:
    """Trials in `workers` threads of this process; each waits for worker processes, so threads are enough."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="trial")

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[TrialResult]:
        return self._threads.submit(work)

    def close(self) -> None:
        """Wait for what runs and drop what has not begun."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
