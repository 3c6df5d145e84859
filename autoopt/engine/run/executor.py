"""Executors of trials: threads of this process here, flow runs in `autoopt.orchestrate`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Final, Protocol, TypeAlias, TypeVar

from autoopt.results import Trial

SIGNAL_SECONDS: Final = 0.5
"""Ctrl-C takes effect within this time."""
Work: TypeAlias = Callable[[], Trial]
Value = TypeVar("Value")


def result_of(future: Future[Value]) -> Value:
    """Wait for a result in a way that signals can interrupt; raises what the future raises."""
    # Only the main thread handles signals, and the kernel may deliver them to another one. A wait without a time limit
    # would then last until the result is there.
    while not future.done():
        wait([future], SIGNAL_SECONDS)
    return future.result()


class Executor(Protocol):
    """Executes trials. Thread-safe."""

    is_local: bool
    """Trials run in this process."""
    ahead: int
    """Trials that are submitted beyond those that may run in parallel, so that they begin without delay."""

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[Trial]:
        """Start a trial and return at once.

        Args:
            chain: Id of the trial's chain.
            name: Readable name of the chain.
            number: Number of the trial.
            work: Executes the trial in this process and stores its end. An executor that has another process do that,
                from the trial's record in the store, does not call it.
        """

    def close(self, chain: str) -> None:
        """Take note that no further trial of this chain will come, now that all of its trials have ended."""


class InlineExecutor:
    """Executes trials in threads of this process. Each waits for worker processes, so threads are enough."""

    is_local = True
    ahead = 0

    def __init__(self, workers: int, stop: Callable[[], None]) -> None:
        """Create the threads.

        `stop` ends the trials under way; it is called if an error or an interrupt ends the block.
        """
        self._threads = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="trial")
        self._stop = stop

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[Trial]:
        return self._threads.submit(work)

    def close(self, chain: str) -> None:
        """Do nothing: chains share the threads."""

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stop()
        self._threads.shutdown(wait=True, cancel_futures=True)
