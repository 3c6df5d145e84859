"""A run and a sweep as their flow runs show them while they go on: how far they are, and the state of each model."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from autoopt.errors import one_line
from autoopt.metrics import headline_metrics
from autoopt.observer import Observer
from autoopt.orchestrate.server.outages import best_effort, client_retries
from autoopt.report.figures import figure_title, rounded_figure
from autoopt.results import SweepEntry, Trial

EVERY_SECONDS = 2.0
"""The table is renewed at most so often: of 1,000 models it is 150 kB."""


class Progress:
    """Artifact `progress` of the flow run under way."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._made: UUID | None = None

    @best_effort
    def show(self, percent: float) -> None:
        """How far it is. Tried once: it will soon be shown again."""
        with client_retries(0):
            if self._made is None:
                made: Any = create_progress_artifact(progress=percent, key="progress", description=self._description)
                self._made = made
            else:
                update_progress_artifact(self._made, progress=percent)


class TrialProgress(Observer):
    """Shows the share of a run's trials that have ended."""

    def __init__(self, progress: Progress, budget: int) -> None:
        self._progress, self._budget = progress, budget
        self._trials = 0

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        self._trials += 1
        self._progress.show(min(100.0, 100.0 * self._trials / self._budget))


class SweepShown(Observer):
    """Artifacts `progress` and `models` of the flow run under way."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._progress = Progress("")
        self._table: UUID | None = None
        self._renewed = 0.0
        self._done = 0

    def on_sweep_start(self, models: Sequence[str]) -> None:
        self._rows = {name: {"model": name, "state": "waiting"} for name in models}
        self._progress = Progress(f"{len(models)} models of the sweep")
        self._renew()

    def on_model_start(self, name: str) -> None:
        if name in self._rows:
            self._rows[name]["state"] = "running"
            self._renew()

    def on_model_end(self, entry: SweepEntry) -> None:
        self._rows[entry.name] = row(entry)
        self._done += 1
        self._renew()

    @best_effort
    def _renew(self) -> None:
        over = self._done == len(self._rows)
        if not over and self._fresh():
            return
        self._renewed = time.monotonic()
        self._progress.show(100.0 * self._done / max(1, len(self._rows)))
        rows = list(self._rows.values())
        if self._table is None:
            described = f"{len(rows)} models of the sweep; `autoopt best RUN` shows one"
            made: Any = create_table_artifact(key="models", table=rows, description=described)
            self._table = made
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._table, ArtifactUpdate(data=json.dumps(rows)))

    def _fresh(self) -> bool:
        return time.monotonic() - self._renewed < EVERY_SECONDS


def row(entry: SweepEntry) -> dict[str, Any]:
    """The table row of a finished model; its objectives and constraints come first."""
    result, best = entry.result, entry.best
    cells: dict[str, Any] = {"model": entry.name, "state": entry.status, "since last good": entry.compared.verdict}
    cells["best chain"] = best.chain if best else ""
    if result is not None and best is not None:
        for metric in dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size"]):
            cells[figure_title(metric)] = rounded_figure(metric, best.metrics, best.ratios)
    cells["run"] = entry.run
    cells["artifact"] = best.artifact[:12] if best else ""
    cells["said"] = one_line(entry.reason)
    return cells
