"""Artifacts of flow runs: progress, tables and plots. The store is the truth; these only display it."""

from __future__ import annotations

import base64
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, ParamSpec, TypeAlias
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run

from autoopt.engine.run.session import Session
from autoopt.errors import one_line
from autoopt.json_codec import from_json
from autoopt.metrics import Constraint, Objective
from autoopt.observer import Observer
from autoopt.orchestrate.connection import without_userinfo
from autoopt.orchestrate.names import artifact_key
from autoopt.report.charts import best_so_far, trade_offs
from autoopt.report.drawing import can_draw, picture
from autoopt.report.run_lists import trials_table
from autoopt.report.run_view import RunView
from autoopt.report.table import markdown
from autoopt.report.words.formatting import plural
from autoopt.report.words.verdict import verdict
from autoopt.results import RunResult, SweepEntry, Trial
from autoopt.results.figures import first_objective
from autoopt.store import Store
from autoopt.store.finished import finished_trials

ROWS: Final = 200
"""Maximum number of trials in a table; the store has them all."""
UPDATE_SECONDS: Final = 2.0
"""Shortest interval of updates of a progress."""

P = ParamSpec("P")
RunLogger: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"


def best_effort(show: Callable[P, None]) -> Callable[P, None]:
    """Decorate a function that only shows something: a server that does not take it ends no run."""

    @functools.wraps(show)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            show(*args, **kwargs)
        except (httpx.HTTPError, PrefectException) as error:
            get_run_logger().warning(one_line(f"the Prefect server does not show everything ({error})"))

    return attempt


class Progress:
    """A share of finished work as an artifact of the flow run in which it is made. Thread-safe."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._artifact: UUID | None = None
        self._next = 0.0
        self._lock = threading.Lock()

    @best_effort
    def show(self, percent: float, description: str, *, always: bool = True) -> None:
        """Update the artifact; unless `always`, only now and then."""
        with self._lock:
            if not always and time.monotonic() < self._next:
                return
            self._next = time.monotonic() + UPDATE_SECONDS
            if self._artifact is None:
                # Typed as a coroutine, but outside of an event loop it returns the id.
                created: Any = create_progress_artifact(progress=percent, key=self._key, description=description)
                self._artifact = created
            else:
                update_progress_artifact(self._artifact, progress=percent, description=description)


class RunNotes(Observer):
    """Writes notes and phases to the log of a flow run."""

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger

    def on_note(self, text: str) -> None:
        self._logger.info(one_line(text))

    def on_phase(self, name: str) -> None:
        self._logger.info(one_line(name))


class RunProgress(Observer):
    """Shows the share of a run's trials that have ended."""

    def __init__(self, session: Session, name: str) -> None:
        self._budget = session.ctx.problem.search.trials or session.ctx.problem.plan.point_count
        self._progress = Progress(artifact_key("progress", name))
        self._trials = 0

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        self._trials += 1
        percent = min(100.0, 100.0 * self._trials / self._budget)
        text = f"{self._trials} of {plural(self._budget, 'trial')}"
        if best is not None:
            text += f", best {best:.3f} of the source's latency"
        self._progress.show(percent, text, always=False)

    def ended(self) -> None:
        """Say how many trials there were."""
        self._progress.show(100.0, plural(self._trials, "trial"))


class SweepProgress(RunNotes):
    """Also shows how many models of a sweep have ended."""

    def __init__(self, logger: RunLogger, zoo: str) -> None:
        super().__init__(logger)
        self._models = 0
        self._ended: set[str] = set()
        self._progress = Progress(artifact_key("progress", zoo))

    def on_sweep_start(self, models: Sequence[str]) -> None:
        self._models = len(models)

    def on_model_start(self, name: str) -> None:
        self._progress.show(100.0 * len(self._ended) / max(1, self._models), f"model {name}")

    def on_model_end(self, entry: SweepEntry) -> None:
        self._ended.add(entry.name)
        if entry.reason:
            self._logger.warning(one_line(f"{entry.name}: {entry.reason}"))

    def ended(self) -> None:
        """Say how many models there were."""
        self._progress.show(100.0, plural(self._models, "model"))


@best_effort
def show_chain(store: Store, run: str, chain: str, *names: str) -> None:
    """Show the finished trials of a chain as a table of the current flow run.

    `names` are those of run and chain, for the artifact's key.
    """
    settings = store.runs.get(run).settings
    objectives = [from_json(Objective, item) for item in settings.get("objectives") or ()]
    constraints = [from_json(Constraint, item) for item in settings.get("constraints") or ()]
    trials = finished_trials(store, run, chain)[:ROWS]
    table = trials_table(trials, objectives, constraints)
    rows = []
    for trial, cells in zip(trials, table.rows, strict=True):
        artifact = trial.candidate.artifact[:12] if trial.candidate else ""
        rows.append({**dict(zip(table.columns, cells, strict=True)), "artifact": artifact})
    if rows:
        description = f"Trials of run {run}; autoopt lineage and apply take the artifacts' ids"
        create_table_artifact(rows, artifact_key("trials", *names), description)


@best_effort
def show_result(store: Store, result: RunResult, name: str) -> None:
    """Show the result of a run in the current flow run: its answer and front, the best so far, and the trade-off."""
    answer = one_line(verdict(result))  # pages show the description above the text
    page = without_userinfo(flow_run.ui_url or "")
    create_markdown_artifact(result_markdown(result, page), artifact_key("result", name), answer)
    for kind, chart, description in _plots(result, finished_trials(store, result.run)):
        create_image_artifact(chart, artifact_key(kind, name), description)


@best_effort
def show_sweep(zoo: str, text: str) -> None:
    """Show a sweep in the current flow run; pages show the description, here the first sentence, above the rest."""
    headline, _, rest = text.partition("\n\n")
    create_markdown_artifact(rest, artifact_key("sweep", zoo), headline.strip("*"))


def result_markdown(result: RunResult, page: str = "") -> str:
    """The models of a run with the run's own metrics, caveats, and where there is more.

    `page` is the address of the flow run.
    """
    parts, view = [], RunView(result)
    for table in view.tables:
        if len(result.targets) > 1:
            parts.append(f"*{table.title}*")
        parts.append(markdown(table))
    parts.append("\n".join(f"- {one_line(note).removeprefix('* ')}" for note in (*view.caveats, *result.notes)))
    links = [f"`autoopt {command} {result.run}`" for command in ("runs", "report", "lineage")]
    if page:
        links.insert(0, f"[flow run]({page})")
    parts.append(f"Run `{result.run}`: {result.status}; {', '.join(links)}")
    return "\n\n".join(filter(None, parts))


def _plots(result: RunResult, trials: Sequence[Trial]) -> Iterator[tuple[str, str, str]]:
    """Kind, picture as a data URL, and description of charts of several trials, if the extra `plots` is installed."""
    if len(trials) < 2 or not can_draw():
        return
    objective = first_objective(result)
    charts = [("best-so-far", best_so_far(trials, objective), f"{objective.metric} of each trial, and the best so far")]
    for metric, pareto in list(trade_offs(result, trials).items())[:1]:
        charts.append(("pareto", pareto, f"{objective.metric} and {metric}; the Pareto front stands out"))
    for kind, chart, description in charts:
        if chart is not None:
            data = base64.b64encode(picture(chart).encode()).decode()
            yield kind, f"data:image/svg+xml;base64,{data}", description
