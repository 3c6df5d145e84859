"""Displays of progress: whole lines for files, pipes and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from autoopt.errors import one_line
from autoopt.outcome import Outcome
from autoopt.report.progress.search_progress import SearchProgress
from autoopt.report.words.change import trial_change, trial_changes
from autoopt.report.words.failures import plain_reason
from autoopt.report.words.steps import steps_text
from autoopt.results import Trial

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
