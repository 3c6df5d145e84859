"""Displays of progress: whole lines for files and pipes, a line that is rewritten for notebooks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from autoopt.errors import one_line
from autoopt.outcome import Outcome
from autoopt.report.figures import trial_figures, trial_title
from autoopt.report.formatting import value_text
from autoopt.report.search_progress import SearchProgress
from autoopt.results import Trial

SPINNER = "|/-\\"


@dataclass
class Work:
    """A pass or a measurement that a worker executes."""

    text: str
    since: float


@dataclass
class LiveState:
    """The facts that a live display shows. Guarded by `lock`."""

    search: SearchProgress
    opening: str = ""
    """Work before the search is known."""
    model: str = ""
    """The model of a sweep that is searched."""
    stage: str = ""
    """The stage after the trials."""
    works: dict[int, Work] = field(default_factory=dict)
    """Work in progress, by number of the worker."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Display(Protocol):
    """Writes progress to its stream. Thread-safe; called without the lock of the state."""

    def write_line(self, text: str) -> None:
        """Write a whole line."""

    def write_trial(self, time: str, trial: Trial, *, gains: bool) -> None:
        """Write a line on a trial.

        Args:
            time: The beginning of the line.
            trial: The finished trial.
            gains: True if it is the best so far and better than the source model.
        """

    def update(self) -> None:
        """Show a change of the state."""

    def close(self) -> None:
        """Remove everything but the lines."""


class Lines:
    """Writes whole lines only, for files and pipes. A stream that takes no more, such as a full disk, ends no run."""

    def __init__(self, stream: TextIO, state: LiveState) -> None:
        self._stream, self._state = stream, state

    def write_line(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def write_trial(self, time: str, trial: Trial, *, gains: bool) -> None:
        self.write_line(f"{time} {one_line(trial_line(trial, self._state.search.metrics))}")

    def update(self) -> None:
        """Nothing but lines is shown."""

    def close(self) -> None:
        """Nothing is left to remove."""


class StatusLine(Lines):
    """Rewrites the line below the others at every change, for notebooks."""

    def __init__(self, stream: TextIO, state: LiveState, clock: Callable[[], float]) -> None:
        super().__init__(stream, state)
        self._clock = clock
        self._lock = threading.Lock()
        self._width = 0

    def write_line(self, text: str) -> None:
        with self._lock:
            self._wipe()
            super().write_line(text)

    def update(self) -> None:
        now = self._clock()
        with self._state.lock:
            works = [work.text for work in self._state.works.values()]
            parts = [*self._state.search.texts(now), ", ".join(works) or self._state.opening or "waiting"]
        spinner = SPINNER[int(now * 4) % len(SPINNER)]
        width = max(20, shutil.get_terminal_size().columns - 1)
        text = one_line(f"{spinner} {' · '.join(parts)}")[:width]
        with self._lock:
            self._wipe()
            self._stream.write(text)
            self._stream.flush()
            self._width = len(text)

    def close(self) -> None:
        with self._lock:
            self._wipe()

    def _wipe(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0


def trial_line(trial: Trial, metrics: Sequence[str]) -> str:
    """A trial in one line, `metrics` first: `trial 3: fold -> static [static: bits=8]: latency_p50 0.301x (...)`."""
    result = trial.result
    parts = trial_figures(result, metrics) if result.outcome is Outcome.OK else [value_text(str(result.outcome))]
    if result.message:
        parts.append(result.message)
    if result.violation > 0:
        parts += [f"breaks: {reason}" for reason in result.reasons]
    else:
        parts += [reason.partition(":")[0] for reason in result.reasons]
    if result.outcome is Outcome.OK and result.executed == 0:
        parts.append("reused")
    return f"{trial_title(trial)}: {', '.join(parts)}"
