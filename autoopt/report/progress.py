"""Live progress: a view of the search on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Estimate, Objective, headline_metrics
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.report.search_progress import SPINNER, Lines, LiveState, SearchProgress, Work
from autoopt.report.words.formatting import figure_text
from autoopt.results import Trial
from autoopt.results.figures import DEFAULT_OBJECTIVE, kind

if TYPE_CHECKING:
    from autoopt.report.live_view import LiveView


class Progress(Observer):
    """Writes progress to `stream`, which is standard error. Thread-safe."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, quiet: bool = False, live: bool = True
    ) -> None:
        """Make a display for one run.

        `live` shows the work in progress if the stream is a terminal; `quiet` shows nothing at all.
        """
        self._clock, self._quiet = clock, quiet
        self._began = clock()
        search = SearchProgress(headline_metrics(()), DEFAULT_OBJECTIVE.goal, planned=0, began=self._began)
        self.state = LiveState(search)
        self._numbers: dict[int, int] = {}
        self._models: list[str] = []
        self._stream, self._live = stream, live and not quiet
        self.notes: list[str] = []
        """The notes that were shown."""

    @cached_property
    def _display(self) -> Lines | LiveView:
        """The display, which opens with the first thing to show."""
        if self._live and is_terminal(self._stream):
            # Imported only now: without a terminal, nothing needs rich.
            from autoopt.report.live_view import LiveView

            return LiveView(self._stream, self.state, self._clock)
        return Lines(self._stream, self.state)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.close()

    def opening(self, text: str) -> None:
        """Show the text in a live view; print nothing elsewhere, so that an error is the only line."""
        with self.state.lock:
            self.state.opening = text
        if self._live and is_terminal(self._stream):
            # The view takes a moment to import. It begins by drawing over this line.
            self._stream.write(f"{SPINNER[0]} {one_line(text)}\r")
            self._stream.flush()
        self._display.update()

    def on_note(self, text: str) -> None:
        if not self._quiet:
            self.notes.append(text)
        self._write(text)

    def on_phase(self, name: str) -> None:
        with self.state.lock:
            self.state.stage = name
            if self.state.opening:
                self.state.opening = name
        self._write(name)

    def on_sweep_start(self, models: Sequence[str]) -> None:
        self._models = list(models)

    def on_model_start(self, name: str) -> None:
        position = ""
        if name in self._models:
            position = f" {self._models.index(name) + 1} of {len(self._models)}"
        with self.state.lock:
            self.state.opening = ""
            self.state.model = f"model{position}: {name}"

    def on_search_start(
        self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int, seconds: float
    ) -> None:
        metrics, goal = headline_metrics(objectives, constraints), next(iter(objectives), DEFAULT_OBJECTIVE).goal
        now = self._clock()
        with self.state.lock:
            self.state.opening = self.state.stage = ""
            self.state.search = SearchProgress(metrics, goal, trials, now, now + seconds)
        self._display.update()

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        with self.state.lock:
            search = self.state.search
            search.began = self._clock()
        # The fidelity of the source compares it with itself.
        names = [name for name in dict.fromkeys((*search.metrics, "size")) if kind(name) != "fidelity"]
        figures = [f"{name} {figure_text(name, metrics[name].value)}" for name in names if name in metrics]
        self._write(f"source model: {', '.join(figures)}")

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        with self.state.lock:
            search = self.state.search
            gains = search.add(trial) and search.has_gain
        if not self._quiet:
            self._display.write_trial(self._time_text(), trial, gains=gains)
            self._display.update()

    def on_pass_start(self, nodes: Sequence[str]) -> None:
        self._start(f"applying {' -> '.join(nodes)}")

    def on_pass_end(self, node: str, outcome: Outcome, seconds: float, message: str) -> None:
        self._end()

    def on_measure_start(self, meter: str) -> None:
        self._start(f"measuring {meter}")

    def on_measure_end(self, meter: str, outcome: Outcome, seconds: float) -> None:
        self._end()

    def _start(self, text: str) -> None:
        """Show work of the calling thread, as the worker of the lowest free number."""
        thread = threading.get_ident()
        with self.state.lock:
            works = self.state.works
            number = self._numbers.get(thread)
            if number is None:
                number = next(number for number in range(1, len(works) + 2) if number not in works)
            self._numbers[thread] = number
            works[number] = Work(one_line(text), self._clock())
        self._display.update()

    def _end(self) -> None:
        with self.state.lock:
            number = self._numbers.pop(threading.get_ident(), None)
            if number is not None:
                del self.state.works[number]
        self._display.update()

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._display.write_line(f"{self._time_text()} {one_line(text)}")
            self._display.update()

    def _time_text(self) -> str:
        return f"[{self._clock() - self._began:6.1f} s]"


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_notebook() -> bool:
    """True in the process of a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
