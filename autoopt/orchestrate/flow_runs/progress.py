"""Progress artifacts: the share of finished trials of a run, and the state of each model of a sweep."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, TypeAlias
from uuid import UUID

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from autoopt.errors import one_line
from autoopt.metrics import headline_metrics
from autoopt.observer import Observer
from autoopt.orchestrate.flow_runs.naming import artifact_key
from autoopt.orchestrate.server.outages import best_effort, client_retries
from autoopt.report.words.change import value_text
from autoopt.report.words.formatting import plural
from autoopt.report.words.verdict import gains
from autoopt.results import SweepEntry, Trial

UPDATE_SECONDS = 2.0
"""Shortest interval of updates of the table: with 1,000 models it has 150 kB."""

Row: TypeAlias = dict[str, object]


class ProgressArtifact:
    """The share of finished work as an artifact of the current flow run."""

    def __init__(self, key: str, description: str) -> None:
        self._key = key
        self._description = description
        self._artifact: UUID | None = None

    @best_effort
    def show(self, percent: float) -> None:
        """Update the artifact. A failed request is not repeated, because the next update follows soon."""
        with client_retries(0):
            if self._artifact is None:
                # Typed as a coroutine, but outside of an event loop it returns the id.
                created: Any = create_progress_artifact(progress=percent, key=self._key, description=self._description)
                self._artifact = created
            else:
                update_progress_artifact(self._artifact, progress=percent)


class TrialProgress(Observer):
    """Shows the share of a run's trials that have ended."""

    def __init__(self, progress: ProgressArtifact, budget: int) -> None:
        self._progress = progress
        self._budget = budget
        self._trials = 0

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        self._trials += 1
        self._progress.show(min(100.0, 100.0 * self._trials / self._budget))


class SweepProgress(Observer):
    """Artifacts `progress` and `models` of the current flow run, with the name of the zoo in their keys."""

    def __init__(self, zoo: str) -> None:
        self._zoo = zoo
        self._rows: dict[str, Row] = {}
        self._progress = ProgressArtifact("", "")
        self._table: UUID | None = None
        self._updated = 0.0
        self._finished: set[str] = set()

    def on_sweep_start(self, models: Sequence[str]) -> None:
        self._rows = {name: {"model": name, "state": "waiting"} for name in models}
        self._progress = ProgressArtifact(
            artifact_key("progress", self._zoo), f"{plural(len(models), 'model')} of the sweep"
        )
        self._update()

    def on_model_start(self, name: str) -> None:
        if name in self._rows:
            self._rows[name]["state"] = "running"
            self._update()

    def on_model_end(self, entry: SweepEntry) -> None:
        self._rows[entry.name] = entry_row(entry)
        self._finished.add(entry.name)
        self._update()

    @best_effort
    def _update(self) -> None:
        complete = len(self._finished) == len(self._rows)
        if not complete and time.monotonic() - self._updated < UPDATE_SECONDS:
            return
        self._updated = time.monotonic()
        self._progress.show(100.0 * len(self._finished) / max(1, len(self._rows)))
        rows = list(self._rows.values())
        if self._table is None:
            description = f"{plural(len(rows), 'model')} of the sweep; show one with `autoopt best RUN`"
            created: Any = create_table_artifact(
                key=artifact_key("models", self._zoo), table=rows, description=description
            )
            self._table = created
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._table, ArtifactUpdate(data=json.dumps(rows)))


def entry_row(entry: SweepEntry) -> Row:
    """The table row of a finished model; its objectives and constraints come first."""
    row: Row = {"model": entry.name, "state": entry.status, "since last good": entry.compared.verdict}
    result, best = entry.result, entry.best
    row["result"] = row["best chain"] = artifact = ""
    if best is not None:
        row["best chain"] = best.chain
        artifact = best.artifact[:12]
        if result is not None:
            row["result"] = ", ".join(gains(result, best))
            for metric in dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size"]):
                row[metric] = value_text(metric, best.metrics)
    row["run"] = entry.run
    row["artifact"] = artifact
    row["reason"] = one_line(entry.reason)
    return row
