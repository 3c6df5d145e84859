"""Live progress: a line for each trial, and on a terminal a line with the work in progress."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Direction, Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.report.figures import DEFAULT_OBJECTIVE, is_better, trial_estimate, trial_figures, trial_title
from autoopt.report.formatting import clock_text, metric_text, value_text
from autoopt.results import Trial, TrialResult
from autoopt.space import Point

SPINNER = "|/-\\"


class Progress(Observer):
    """Writes progress to `stream`, which is standard error. Thread-safe.

    On a terminal the last line shows the work in progress; elsewhere only whole lines are written.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
        live: bool | None = None,
    ) -> None:
        """Make a display for one run.

        Args:
            stream: Where to write.
            clock: Seconds since any moment.
            quiet: Write nothing.
            live: Rewrite the last line; by default on a terminal only.
        """
        self._stream, self._clock, self._quiet = stream, clock, quiet
        self._live = (stream.isatty() if live is None else live) and not quiet
        self._lock = threading.Lock()
        self._began = clock()
        self._search = SearchProgress(headline_metrics(()), DEFAULT_OBJECTIVE.goal, budget=0, began=self._began)
        self._work: dict[tuple[int, str], str] = {}
        self._live_width = 0
        self.notes: list[str] = []
        """The notes that were shown."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._work.clear()
            self._wipe()

    def opening(self, text: str) -> None:
        """Show on a terminal what goes on before anything is known; elsewhere an error is to be the only line."""
        with self._updating():
            self._work[0, "opening"] = text

    def on_note(self, text: str) -> None:
        if not self._quiet:
            self.notes.append(text)
        with self._updating():
            self._write_line(text)

    def on_phase(self, name: str) -> None:
        with self._updating():
            self._write_line(name)

    def on_search_start(self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int) -> None:
        metrics, goal = headline_metrics(objectives, constraints), next(iter(objectives), DEFAULT_OBJECTIVE).goal
        with self._updating():
            self._work.pop((0, "opening"), None)
            self._search = SearchProgress(metrics, goal, trials, self._clock())

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        with self._updating():
            names = dict.fromkeys((*self._search.metrics, "size"))
            figures = [f"{name} {metric_text(name, metrics[name].value)}" for name in names if name in metrics]
            self._write_line(f"source model: {', '.join(figures)}")
            self._search.began = self._clock()

    def on_trial_start(self, number: int, chain: str, point: Point) -> None:
        with self._updating():
            self._work[0, "trial"] = f"trial {number} {chain}"

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        with self._updating():
            self._search.add(trial.result)
            self._write_line(trial_line(trial, self._search.metrics))

    def on_pass_start(self, nodes: Sequence[str]) -> None:
        with self._updating():
            self._work[threading.get_ident(), "pass"] = " -> ".join(nodes)

    def on_pass_end(self, node: str, outcome: Outcome, seconds: float, message: str) -> None:
        with self._updating():
            self._work.pop((threading.get_ident(), "pass"), None)

    def on_measure_start(self, meter: str) -> None:
        with self._updating():
            self._work[threading.get_ident(), "measure"] = f"measuring {meter}"

    def on_measure_end(self, meter: str, outcome: Outcome, seconds: float) -> None:
        with self._updating():
            self._work.pop((threading.get_ident(), "measure"), None)

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Hold the lock, then redraw the live line."""
        with self._lock:
            yield
            if self._live:
                self._draw()

    def _write_line(self, text: str) -> None:
        if self._quiet:
            return
        self._wipe()
        self._stream.write(f"[{self._clock() - self._began:6.1f} s] {one_line(text)}\n")
        self._stream.flush()

    def _draw(self) -> None:
        self._wipe()
        now = self._clock()
        parts = [*self._search.texts(now), ", ".join(self._work.values()) or "waiting"]
        spinner = SPINNER[int(now * 4) % len(SPINNER)]
        width = max(20, shutil.get_terminal_size().columns - 1)
        text = one_line(f"{spinner} {' · '.join(parts)}")[:width]
        self._stream.write(text)
        self._stream.flush()
        self._live_width = len(text)

    def _wipe(self) -> None:
        if self._live_width:
            self._stream.write("\r" + " " * self._live_width + "\r")
            self._live_width = 0


def in_notebook() -> bool:
    """True in the process of a Jupyter kernel, whose cells understand rewritten lines."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class SearchProgress:
    """The trials of one search: their number, the best value of the first objective, the time left."""

    def __init__(self, metrics: Sequence[str], goal: Direction, budget: int, began: float) -> None:
        self.metrics = tuple(metrics)
        """The metrics of objectives and constraints; the first one is the first objective."""
        self._goal, self._budget = goal, budget
        self.began = began
        """Start of the first trial."""
        self._trials = 0
        self._best: float | None = None

    def add(self, result: TrialResult) -> None:
        """Count a trial."""
        self._trials += 1
        estimate = trial_estimate(result, self.metrics[0])
        if estimate is None or not result.feasible:
            return
        if self._best is None or is_better(estimate.value, self._best, self._goal):
            self._best = estimate.value

    def texts(self, now: float) -> list[str]:
        """`1/6 trials`, `best latency_p50 0.5x`, `0:16, about 1:10 left`."""
        texts = [f"{self._trials}/{self._budget} trials" if self._budget else f"{self._trials} trials"]
        if self._trials:
            texts.append(self._best_text())
        elapsed = clock_text(now - self.began)
        if 0 < self._trials < self._budget:
            left = (now - self.began) / self._trials * (self._budget - self._trials)
            elapsed = f"{elapsed}, about {clock_text(left)} left"
        return [*texts, elapsed]

    def _best_text(self) -> str:
        objective = self.metrics[0]
        if self._best is None:
            return "no feasible trial yet"
        if not is_ratio_metric(objective):
            return f"best {objective} {metric_text(objective, self._best)}"
        if is_better(self._best, 1.0, self._goal):
            return f"best {objective} {self._best:.3f}x"
        return "no gain yet"


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
