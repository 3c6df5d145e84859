"""A run as Optuna studies, one for each target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autoopt.engine.tools.exports.content import ExportedRun, ExportedTrial, parts_of
from autoopt.json_codec import JsonValue, to_json
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE, Direction, Objective
from autoopt.store import RunRecord, Store


def export_optuna(store: Store, record: RunRecord, file: Path) -> list[str]:
    """Write a run into an SQLite file that Optuna and optuna-dashboard read; return the names of the studies.

    Raises:
        InputError: the run has no trial yet, or the file cannot be written.
    """
    from autoopt.search.optuna_study.export import ExportedStudy, StudyTrial, write_studies

    studies = []
    for part in parts_of(store, record):
        columns = _columns(part)
        trials = []
        for trial in part.trials:
            study_trial = StudyTrial(
                chain=trial.trial.chain,
                params=trial.params,
                values=_values(trial, list(columns)),
                violation=trial.trial.violation,
                start=trial.start,
                end=trial.end,
                attributes=_attributes(trial),
            )
            trials.append(study_trial)
        attributes: dict[str, JsonValue] = {"run": part.record.id, "source": to_json(part.result.baseline.metrics)}
        if part.result.best is not None:
            attributes["best"] = part.result.best.chain
        name = f"{part.name}-{part.record.id}"
        studies.append(ExportedStudy(name, tuple(columns.items()), tuple(trials), attributes))
    write_studies(file, studies)
    return [study.name for study in studies]


def _columns(part: ExportedRun) -> dict[str, Direction]:
    """The figure of each objective: the paired ratio if the metric drifts with the machine's pace, else its value."""
    columns: dict[str, Direction] = {}
    for objective in part.result.objectives or [Objective(MEDIAN_LATENCY, "minimize")]:
        name = objective.metric
        if name in STEADY_STATE and any(f"{name}_ratio" in trial.figures for trial in part.trials):
            name = f"{name}_ratio"
        columns[name] = objective.goal
    return columns


def _values(trial: ExportedTrial, columns: Sequence[str]) -> tuple[float, ...]:
    if not trial.succeeded or any(name not in trial.figures for name in columns):
        return ()
    return tuple(trial.figures[name] for name in columns)


def _attributes(trial: ExportedTrial) -> dict[str, JsonValue]:
    attributes: dict[str, JsonValue] = {"autoopt trial": trial.trial.number, "outcome": str(trial.trial.outcome)}
    attributes |= dict(trial.figures)
    if trial.trial.explanation:
        attributes["message"] = trial.trial.explanation
    if trial.trial.candidate is not None:
        attributes["artifact"] = trial.trial.candidate.artifact
    return attributes
