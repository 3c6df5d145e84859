"""Content of a run for other tools: its parts, for targets or models, and their trials with times and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.outcome import Outcome
from autoopt.results import RunResult, Trial, values_of
from autoopt.results.trial import flat_params, flat_ratios
from autoopt.store import EvaluationRecord, PassRunRecord, RunRecord, Store
from autoopt.store.finished import finished_trials, result_of


@dataclass(frozen=True)
class ExportedTrial:
    """A finished trial. Times are seconds since 1970."""

    trial: Trial
    start: float
    end: float
    """The end of its last piece of work; the start of the run if the trial reused everything."""
    params: Mapping[str, JsonValue]
    """Searched parameters by `node.parameter`."""
    figures: Mapping[str, float]
    """Metrics by name, and ratios with the bounds of their intervals by `NAME_ratio`, `_low` and `_high`."""

    @property
    def succeeded(self) -> bool:
        """True if the trial has figures, whether it meets the constraints or not."""
        return self.trial.outcome is Outcome.OK


@dataclass(frozen=True)
class ExportedRun:
    """A run, or the part of one for one of several targets or models."""

    name: str
    """Name of the DAG, with the target's or model's name if there are several."""
    record: RunRecord
    result: RunResult
    trials: tuple[ExportedTrial, ...]


def parts_of(store: Store, record: RunRecord) -> list[ExportedRun]:
    """Collect a run, or each of its parts.

    Raises:
        InputError: the run has no trial yet.
    """
    result = result_of(record)
    named = {target.name: target.result for target in result.targets}
    named |= {part.name: part.result for part in result.parts}
    if named:
        parts = []
        for name, part_result in named.items():
            parts.append(_part(store, f"{record.name}-{name}", store.runs.get(part_result.run), part_result))
    else:
        parts = [_part(store, record.name, record, result)]
    if not any(part.trials for part in parts):
        raise InputError("has no trial in the store", where=f"run {record.id}")
    return parts


def _part(store: Store, name: str, record: RunRecord, result: RunResult) -> ExportedRun:
    trials = tuple(_trial(store, record, trial) for trial in finished_trials(store, record.id))
    return ExportedRun(name, record, result, trials)


def _trial(store: Store, record: RunRecord, trial: Trial) -> ExportedTrial:
    work: list[PassRunRecord | EvaluationRecord] = [
        *store.results.pass_runs(trial.pass_runs).values(),
        *store.results.evaluations(trial.evaluations).values(),
    ]
    end = max((piece.finished for piece in work if piece.run == record.id), default=record.created)
    figures = {**values_of(trial.metrics), **flat_ratios(trial.ratios)}
    return ExportedTrial(trial, end - trial.seconds, end, flat_params(trial.point), figures)
