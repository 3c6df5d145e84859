"""The parts of a run for other tools: one for each of its targets or models, with their trials."""

from __future__ import annotations

from dataclasses import dataclass

from autoopt.errors import InputError
from autoopt.results import RunResult, Trial
from autoopt.store import RunRecord, Store
from autoopt.store.finished import finished_trials, result_of


@dataclass(frozen=True)
class ExportedRun:
    """A run, or the part of one for one of several targets or models."""

    name: str
    """Name of the DAG, with the target's or model's name if there are several."""
    record: RunRecord
    result: RunResult
    trials: tuple[Trial, ...]


def parts_of(store: Store, record: RunRecord) -> list[ExportedRun]:
    """Collect a run, or each of its parts.

    Raises:
        InputError: the run has no trial yet.
    """
    result = result_of(record)
    named = {target.name: target.result for target in result.targets}
    named |= {part.name: part.result for part in result.parts}
    parts = [ExportedRun(record.name, record, result, tuple(finished_trials(store, record.id)))]
    if named:
        parts = []
        for name, found in named.items():
            run = store.runs.get(found.run)
            parts.append(ExportedRun(f"{record.name}-{name}", run, found, tuple(finished_trials(store, run.id))))
    if not any(part.trials for part in parts):
        raise InputError("has no trial in the store", where=f"run {record.id}")
    return parts
