"""Notes, choices, progress and failures in the logs of flow runs and task runs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Estimate, Objective, headline_metrics
from autoopt.observer import Observer
from autoopt.orchestrate.flow_runs.fields import in_form_words
from autoopt.outcome import Outcome
from autoopt.report.progress.displays import failure_line, trial_line
from autoopt.report.runs.run import caveats
from autoopt.report.words.formatting import params_text
from autoopt.report.words.limits import figure_text
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import verdict
from autoopt.results import RunResult, SweepEntry, Trial

if TYPE_CHECKING:
    RunLogger: TypeAlias = logging.Logger | logging.LoggerAdapter[logging.Logger]

LOGGERS = ("prefect.engine", "prefect.flow_runs", "prefect.task_runs")
FAILED_STATE = "Task run failed with state"


def run_logger() -> RunLogger:
    """The logger of the current task run or flow run; outside of both, autoopt's own."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


class NoteLog(Observer):
    """Writes notes and phases to a logger. Thread-safe, as loggers are.

    Create it with `run_logger()` in the flow run that is to show them; hooks are called in other threads.
    """

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger
        self.notes: set[str] = set()
        """The notes so far."""

    def on_note(self, text: str) -> None:
        self.notes.add(text)
        self._logger.info(one_line(text))

    def on_phase(self, name: str) -> None:
        self._logger.info(one_line(name))


class SweepLog(NoteLog):
    """Also writes the reason of a model without result."""

    def on_model_end(self, entry: SweepEntry) -> None:
        if entry.reason:
            self._logger.warning(one_line(f"{entry.name}: {entry.reason}"))
        for change in (*entry.compared.causes, *entry.compared.other_inputs):
            self._logger.info(one_line(f"{entry.name}: changed since the last good sweep: {change}"))


class RunLog(NoteLog):
    """Also writes the figures of the source model and a line for each trial."""

    def __init__(self, logger: RunLogger) -> None:
        super().__init__(logger)
        self._metrics = tuple(headline_metrics(()))
        self._budget = 0
        self._trials = 0

    def on_search_start(
        self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int, seconds: float
    ) -> None:
        self._metrics = tuple(headline_metrics(objectives, constraints))
        self._budget = trials

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        names = dict.fromkeys((*self._metrics, "size"))
        figures = [f"{name} {figure_text(name, metrics[name].value)}" for name in names if name in metrics]
        self._logger.info(f"source model: {', '.join(figures)}")

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        self._trials += 1
        count = str(self._trials)
        if self._trials <= self._budget:  # repeats of a known model do not count
            count += f"/{self._budget}"
        self._logger.log(_level(trial), f"{count}: {_trial_text(trial, self._metrics)}")


def log_trial(logger: RunLogger, trial: Trial, metrics: Sequence[str]) -> None:
    """Write a trial to the log of its task run: chain, parameters, and figures or the cause of its failure."""
    logger.info(f"chain: {trial.chain}")
    logger.info(f"parameters: {params_text(trial.result.point) or 'none are searched'}")
    logger.log(_level(trial), _trial_text(trial, metrics))


def _trial_text(trial: Trial, metrics: Sequence[str]) -> str:
    """A trial in one line: its figures or the cause of its failure, and its steps."""
    if trial.result.outcome is Outcome.OK:
        return trial_line(trial, metrics)
    return f"{failure_line(trial, trial.number)}  {steps_text(trial.short_chain, trial.result.point)}"


def log_result(logger: RunLogger, result: RunResult, known: Collection[str] = ()) -> None:
    """Write the answer of a run with its caveats and notes, without those that the log has: `known`."""
    for text in (*caveats(result), *result.notes):
        if text not in known:
            logger.info(one_line(in_form_words(text)))
    logger.info(one_line(f"run {result.run}: {result.status}. {in_form_words(verdict(result))}"))


def drop_tracebacks() -> None:
    """Keep tracebacks of Prefect itself out of the logs of this process.

    It logs one for each failed state that a flow or task returns, though the record of the final state says why, and
    for parameters that a flow does not have.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten a record to its cause; False if another record has it."""
    from prefect.exceptions import FailedRun, SignatureMismatchError

    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, SignatureMismatchError):
        record.msg, record.args, record.exc_info = str(error), (), None
    return not (isinstance(error, FailedRun) or record.getMessage().startswith(FAILED_STATE))


def _level(trial: Trial) -> int:
    if trial.result.outcome.good:
        return logging.INFO
    return logging.ERROR
