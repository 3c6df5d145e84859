"""A search while it runs: its trials, the best ones, pace and time left, and the line that is written of each trial."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import Direction, Estimate, is_ratio_metric
from autoopt.outcome import Outcome
from autoopt.report.words.change import ratio_change, trial_change, trial_changes
from autoopt.report.words.failures import plain_reason
from autoopt.report.words.formatting import clock_text, figure_text, number_text, plural
from autoopt.report.words.steps import steps_text
from autoopt.results import Trial
from autoopt.results.figures import is_better, trial_estimate

SPINNER = "|/-\\"
LOG_WIDTH = 120
"""Characters of a line on a trial in a file or pipe."""
STEPS_WIDTH = 24
"""Characters that the passes of a trial have at least."""
WIDE, FEWEST_STEPS = 90, 10
"""Characters of a wide line, and those that the passes have at least in a narrower one."""
NUMBER_WIDTH = len("trial 99:")
CHANGE_WIDTH = len("1.15x faster (1.14 to 1.18)")


@dataclass
class ChainTrials:
    """The trials of one chain."""

    name: str
    """Without the passes that changed nothing in its best trial."""
    trials: int = 0
    best: Estimate | None = None
    """First objective of its best feasible trial: a ratio, or the value of a metric without ratios."""


class SearchProgress:
    """The trials of one search. Times are seconds on the clock of the display."""

    def __init__(
        self, metrics: Sequence[str], goal: Direction, planned: int, began: float, deadline: float = float("inf")
    ) -> None:
        """Start with no trial.

        The first of `metrics` is the first objective, and `goal` its direction. `planned` is the largest number of
        trials, 0 if it is unknown; no trial starts after the `deadline`.
        """
        self.metrics = tuple(metrics)
        self.planned = planned
        self.began = began
        self.trials = 0
        """Without those that repeat the model of an earlier one, which do not count towards the planned ones either."""
        self.best: Estimate | None = None
        """First objective of the best feasible trial."""
        self.chains: dict[str, ChainTrials] = {}
        self._goal = goal
        self._deadline = deadline
        self._executed = 0
        self._known: set[str | None] = set()
        """Keys of the candidates of all trials, and of those that have the same values."""
        self._failures: dict[str, int] = {}
        """By message, the number of the first trial with it."""
        self._models: dict[str, int] = {}
        """By key of the candidate, the number of the first trial with it."""

    def add(self, trial: Trial) -> bool:
        """Count a trial; true if it is the best so far."""
        identities = {trial.twin, None if trial.candidate is None else trial.candidate.key} - {None}
        self.trials += self._known.isdisjoint(identities)
        self._known |= identities
        self._executed += trial.executed > 0
        chain = self.chains.setdefault(trial.chain, ChainTrials(trial.chain))
        chain.trials += 1
        estimate = trial_estimate(trial, self.metrics[0])
        if estimate is None or not trial.feasible:
            return False
        if chain.best is None or is_better(estimate.value, chain.best.value, self._goal):
            chain.best, chain.name = estimate, trial.short_chain
        if self.best is not None and not is_better(estimate.value, self.best.value, self._goal):
            return False
        self.best = estimate
        return True

    def first_failure_like(self, trial: Trial) -> int:
        """The number of the first trial that failed with the same message: possibly this one."""
        return self._failures.setdefault(trial.message, trial.number)

    def first_with_model_of(self, trial: Trial) -> int:
        """The number of the first trial that led to the same candidate: possibly this one."""
        if trial.candidate is None:
            return trial.number
        return self._models.setdefault(trial.candidate.key, trial.number)

    def best_chains(self) -> list[ChainTrials]:
        """The chains with a feasible trial, the best first."""
        chains = [chain for chain in self.chains.values() if chain.best is not None]
        sign = -1 if self._goal == "maximize" else 1
        chains.sort(key=lambda chain: sign * chain.best.value if chain.best else 0.0)
        return chains

    def seconds_per_trial(self, now: float) -> float | None:
        """The pace; trials that were answered from the store, as after a resume, do not count."""
        if not self._executed:
            return None
        return (now - self.began) / self._executed

    def seconds_left(self, now: float) -> float | None:
        """The time that the planned trials will take at this pace, at most up to the deadline; None if unknown."""
        pace = self.seconds_per_trial(now)
        if pace is None or self.trials >= self.planned:
            return None
        return max(0.0, min(pace * (self.planned - self.trials), self._deadline - now))

    def count_text(self) -> str:
        """`3/40 trials`, or `3 trials` if their number is unknown."""
        if self.planned:
            return f"{self.trials}/{max(self.planned, self.trials)} trials"
        return plural(self.trials, "trial")

    def time_text(self, now: float) -> str:
        """`0:16`, and `0:16, about 1:10 left` as soon as there is a pace."""
        elapsed = clock_text(max(0.0, now - self.began))
        left = self.seconds_left(now)
        if left is None:
            return elapsed
        return f"{elapsed}, about {clock_text(left)} left"

    def pace_text(self, now: float) -> str:
        """`2.4 s per trial`; empty if unknown."""
        pace = self.seconds_per_trial(now)
        if pace is None:
            return ""
        return f"{number_text(pace) if pace < 10 else round(pace)} s per trial"

    def best_text(self) -> str:
        """The best trial so far in a few words; empty before the first trial."""
        if not self.trials:
            return ""
        if self.best is None:
            return "no feasible trial yet"
        if not self.has_gain:
            return "no gain yet"
        return self.value_text(self.best)

    @property
    def has_gain(self) -> bool:
        """True if the best trial is better than the source model beyond its interval, if the metric has ratios."""
        if self.best is None:
            return False
        worst = self.best.low if self._goal == "maximize" else self.best.high
        return not is_ratio_metric(self.metrics[0]) or is_better(worst, 1.0, self._goal)

    def value_text(self, estimate: Estimate) -> str:
        """The first objective in words: `1.6x faster (1.5 to 1.6)`, `accuracy 99.5 %`."""
        objective = self.metrics[0]
        if is_ratio_metric(objective):
            return ratio_change(objective, estimate)
        return f"{objective} {figure_text(objective, estimate.value)}"


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


class Lines:
    """Writes whole lines only. A stream that takes no more, such as a full disk, ends no run.

    Thread-safe; called without the lock of the state.
    """

    def __init__(self, stream: TextIO, state: LiveState) -> None:
        self._stream, self._state = stream, state

    def write_line(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def write_trial(self, time: str, trial: Trial, *, gains: bool) -> None:
        self.write_line(f"{time} {line_of(trial, self._state.search, LOG_WIDTH - len(time) - 1)}")

    def update(self) -> None:
        """Nothing but lines is shown."""

    def close(self) -> None:
        """Nothing is left to remove."""


def line_of(trial: Trial, search: SearchProgress, width: int) -> str:
    """A trial in one line of `width` characters; one that repeats an earlier model or failure refers to that."""
    if trial.outcome is not Outcome.OK:
        return failure_line(trial, search.first_failure_like(trial))
    first = search.first_with_model_of(trial)
    if first != trial.number:
        return f"{_numbered(trial)}  same model as trial {first}"
    return trial_line(trial, search.metrics, width)


def trial_line(trial: Trial, metrics: Sequence[str], width: int = 0) -> str:
    """A trial with a model in one line: `trial 3:  1.6x faster (1.5 to 1.6)  3.3x smaller  fold -> static`.

    `metrics` are shown before size and quality. The line has at most `width` characters; 0 for any number.
    """
    cells = [_numbered(trial), *_result_cells(trial, metrics)]
    if trial.executed == 0:
        cells.append("reused")
    if trial.note:
        cells.append(trial.note)
    if not width:
        return f"{'  '.join(cells)}  {steps_text(trial.short_chain, trial.point)}"
    room = width - 2 - FEWEST_STEPS if width < WIDE else width - 2 - STEPS_WIDTH
    while len(cells) > 2 and len("  ".join(cells)) > room:
        del cells[-1]
    line = shorten("  ".join(cells), room)
    return f"{line}  {steps_text(trial.short_chain, trial.point, width - len(line) - 2)}"


def failure_line(trial: Trial, first: int) -> str:
    """A trial without a model in one line of any length: `trial 3:  failed: static: no Conv`.

    `first` is the number of the first trial that failed like it; a later one only refers to that.
    """
    reason = plain_reason(trial.message)
    if first != trial.number:
        reason = f"{reason.partition(':')[0]}, like trial {first}"
    text = ": ".join(filter(None, (str(trial.outcome), reason)))
    return f"{_numbered(trial)}  {one_line(text)}"


def _numbered(trial: Trial) -> str:
    return f"trial {trial.number}:".ljust(NUMBER_WIDTH)


def _result_cells(result: Trial, metrics: Sequence[str]) -> list[str]:
    """The figures of a trial. Metrics that break a limit come first, in a cell of their own."""
    cells = trial_changes(result, metrics)
    if result.violation > 0:
        broken = list(dict.fromkeys(reason.partition(" ")[0] for reason in result.reasons))
        texts = [trial_change(metric, result) or metric for metric in broken]
        others = [cell for cell in cells if cell not in texts]
        cells = [f"breaks the limit: {', '.join(texts) or 'of a metric'}", *others]
    if not cells:
        return ["ok"]
    first, *others = map(one_line, cells)
    return [first.ljust(CHANGE_WIDTH), *others]


def shorten(text: str, width: int) -> str:
    """The beginning of a text that fits."""
    if len(text) <= width:
        return text
    return f"{text[: width - 1]}…"
