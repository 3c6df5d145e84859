"""Live progress: a line for each trial, and on a terminal a line with the work in progress."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.report.figures import trial_figures
from autoopt.report.formatting import clock_text, metric_text, params_text, value_text
from autoopt.results import Trial, TrialResult
from autoopt.space import Point

SPINNER = "|/-\\"


class Progress(Observer):
    """Writes progress to `stream`, which is standard error. Thread-safe.

    On a terminal the last line shows the work in progress; elsewhere only whole lines are written.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, quiet: bool = False) -> None:
        self._stream, self._clock, self._quiet = stream, clock, quiet
        self._live = stream.isatty() and not quiet
        self._lock = threading.Lock()
        self._began = clock()
        self._search = SearchProgress(headline_metrics(()), maximize=False, budget=0, began=self._began)
        self._work: dict[tuple[int, str], str] = {}
        self._live_width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._work.clear()
            self._wipe()

    def on_note(self, text: str) -> None:
        with self._updating():
            self._write_line(text)

    def on_phase(self, name: str) -> None:
        with self._updating():
            self._write_line(name)

    def on_search_start(self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int) -> None:
        maximize = bool(objectives) and objectives[0].goal == "maximize"
        with self._updating():
            self._search = SearchProgress(headline_metrics(objectives, constraints), maximize, trials, self._clock())

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


class SearchProgress:
    """The trials of one search: their number, the best value of the first objective, the time left."""

    def __init__(self, metrics: Sequence[str], maximize: bool, budget: int, began: float) -> None:
        self.metrics = tuple(metrics)
        """The metrics of objectives and constraints; the first one is the first objective."""
        self._maximize, self._budget = maximize, budget
        self.began = began
        """Start of the first trial."""
        self._trials = 0
        self._best: float | None = None

    def add(self, result: TrialResult) -> None:
        """Count a trial."""
        self._trials += 1
        estimate = self._estimate(result)
        if estimate is None or not result.feasible:
            return
        value = estimate.value
        if self._best is None or (value > self._best if self._maximize else value < self._best):
            self._best = value

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
        if self._best > 1 if self._maximize else self._best < 1:
            return f"best {objective} {self._best:.3f}x"
        return "no gain yet"

    def _estimate(self, result: TrialResult) -> Estimate | None:
        objective = self.metrics[0]
        if is_ratio_metric(objective):
            return result.ratios.get(objective)
        return result.metrics.get(objective)


def trial_line(trial: Trial, metrics: Sequence[str]) -> str:
    """A trial in one line: `trial 3: fold -> static [static: per_channel=true]: latency_p50 0.301x (...)`.

    Args:
        trial: The finished trial.
        metrics: The metrics to show first.
    """
    result = trial.result
    params = params_text(result.point)
    text = f"trial {trial.number}: {trial.chain}"
    if params:
        text = f"{text} [{params}]"
    parts = trial_figures(result, metrics) if result.outcome is Outcome.OK else [value_text(str(result.outcome))]
    if result.message:
        parts.append(result.message)
    if result.violation > 0:
        parts += [f"breaks: {reason}" for reason in result.reasons]
    else:
        parts += [reason.partition(":")[0] for reason in result.reasons]
    if result.outcome is Outcome.OK and result.executed == 0:
        parts.append("reused")
    return f"{text}: {', '.join(parts)}"
