"""A run as Optuna studies, one for each target."""

from __future__ import annotations

from pathlib import Path

from autoopt.engine.tools.exports.content import parts_of
from autoopt.json_codec import JsonValue, to_json
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE, Direction, Objective
from autoopt.store import RunRecord, Store


def export_optuna(store: Store, record: RunRecord, file: Path) -> list[str]:
    """Write a run into an SQLite file that Optuna and optuna-dashboard read; return the names of the studies.

    Raises:
        InputError: the run has no trial yet, or the file cannot be written.
    """
    from autoopt.search.optuna_export import ExportedStudy, write_studies

    studies = []
    for part in parts_of(store, record):
        columns: dict[str, Direction] = {}
        for objective in part.result.objectives or [Objective(MEDIAN_LATENCY, "minimize")]:
            # The paired ratio, if the metric drifts with the machine's pace.
            is_paired = objective.metric in STEADY_STATE and any(objective.metric in t.ratios for t in part.trials)
            columns[f"{objective.metric}_ratio" if is_paired else objective.metric] = objective.goal
        attributes: dict[str, JsonValue] = {"run": part.record.id, "source": to_json(part.result.baseline.metrics)}
        if part.result.best is not None:
            attributes["best"] = part.result.best.chain
        studies.append(ExportedStudy(f"{part.name}-{part.record.id}", columns, part.trials, attributes))
    write_studies(file, studies)
    return [study.name for study in studies]
