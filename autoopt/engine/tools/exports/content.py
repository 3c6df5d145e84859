"""The parts of a run for other tools: one for each of its targets or models, with their trials."""

from __future__ import annotations

from collections.abc import Iterator
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
    parts = list(_searches(store, record.name, record, result))
    if not any(part.trials for part in parts):
        raise InputError("has no trial in the store", where=f"run {record.id}")
    return parts


def _searches(store: Store, name: str, record: RunRecord, result: RunResult) -> Iterator[ExportedRun]:
    """Yield a run without parts, or those of its parts: a target may have a model set."""
    named = {target.name: target.result for target in result.targets}
    named |= {part.name: part.result for part in result.parts}
    for part, found in named.items():
        yield from _searches(store, f"{name}-{part}", store.runs.get(found.run), found)
    if not named:
        yield ExportedRun(name, record, result, tuple(finished_trials(store, record.id)))
