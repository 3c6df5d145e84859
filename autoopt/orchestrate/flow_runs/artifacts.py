"""Artifacts of flow runs: tables, plots and ids to look up. The store is the truth; these only display it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal
from uuid import UUID

from autoopt.errors import one_line
from autoopt.json_codec import from_json
from autoopt.metrics import Constraint, Objective, headline_metrics
from autoopt.orchestrate.flow_runs.fields import in_form_words
from autoopt.orchestrate.flow_runs.naming import artifact_key
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.orchestrate.server.outages import best_effort
from autoopt.report.elements.drawing import can_draw, picture
from autoopt.report.elements.table import markdown
from autoopt.report.runs.charts import best_so_far, trade_offs
from autoopt.report.runs.run import caveats, run_tables
from autoopt.report.words.change import metric_cells
from autoopt.report.words.figures import first_objective
from autoopt.report.words.formatting import params_text
from autoopt.report.words.verdict import verdict
from autoopt.results import ModelResult, RunResult, Trial, values_of
from autoopt.search.pareto import Scored, pareto_front
from autoopt.store import Store
from autoopt.store.finished import finished_trials

ROWS = 200
"""Maximum number of trials in a table; the store has them all."""


@dataclass(frozen=True)
class Artifact:
    """A table or text that a flow run shows, in the form of Prefect's API."""

    key: str
    type: Literal["table", "markdown", "image"]
    data: str
    description: str


@best_effort
def show_chain(store: Store, run: str, chain: str, *names: str) -> None:
    """Show the artifacts of a chain in the current flow run; plots only once the run has ended.

    Until then, the flow run ends to make room for another one, and plots take a second of CPU.
    """
    ended = store.runs.get(run).status != "running"
    _show(chain_artifacts(store, run, chain, *names, plots=ended))


@best_effort
def show_result(store: Store, result: RunResult, name: str) -> None:
    """Show the artifacts of a run in the current flow run."""
    from prefect.runtime import flow_run

    _show(result_artifacts(store, result, name, without_userinfo(flow_run.ui_url or "")))


def chain_artifacts(store: Store, run: str, chain: str, *names: str, plots: bool = True) -> Iterator[Artifact]:
    """The finished trials of a chain: a table, and with `plots` the best so far and the Pareto front.

    `names` are those of run and chain, for the artifacts' keys.
    """
    trials = finished_trials(store, run, chain)
    if not trials:
        return
    result = _goal(store, run)
    description = f"Trials of run {run}; autoopt lineage and apply take the artifacts' ids"
    metrics = list(dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size"]))
    rows = [_row(trial, metrics) for trial in trials[:ROWS]]
    yield Artifact(artifact_key("trials", *names), "table", json.dumps(rows), description)
    if plots:
        yield from _plots(RunResult(run, "", front=_front(trials, result), objectives=result.objectives), trials, names)


def result_artifacts(store: Store, result: RunResult, name: str, page: str) -> Iterator[Artifact]:
    """The result of a run: its answer and front, the best so far, and the trade-off; `page`: of the flow run."""
    answer = one_line(in_form_words(verdict(result)))  # pages show the description above the text
    yield Artifact(artifact_key("result", name), "markdown", result_markdown(result, page), answer)
    yield from _plots(result, finished_trials(store, result.run), (name,))


def result_markdown(result: RunResult, page: str = "") -> str:
    """The models of a run with the run's own metrics, caveats, and where there is more.

    `page` is the address of the flow run.
    """
    parts = []
    for table in run_tables(result):
        if len(result.targets) > 1:
            parts.append(f"*{table.title}*")
        parts.append(markdown(table))
    notes = map(in_form_words, (*caveats(result), *result.notes))
    parts.append("\n".join(f"- {one_line(note).removeprefix('* ')}" for note in notes))
    links = [f"`autoopt {command} {result.run}`" for command in ("best", "report", "lineage")]
    if page:
        links.insert(0, f"[flow run]({page})")
    parts.append(f"Run `{result.run}`: {result.status}; {', '.join(links)}")
    return "\n\n".join(filter(None, parts))


def _goal(store: Store, run: str) -> RunResult:
    """The objectives and constraints of a run in progress."""
    settings = store.runs.get(run).settings
    objectives = [from_json(Objective, item) for item in settings.get("objectives") or ()]
    constraints = [from_json(Constraint, item) for item in settings.get("constraints") or ()]
    return RunResult(run, "", objectives=tuple(objectives), constraints=tuple(constraints))


def _front(trials: Sequence[Trial], result: RunResult) -> tuple[ModelResult, ...]:
    """The feasible trials that no other one beats in the first objective and the size."""
    objectives = [first_objective(result), Objective("size", "minimize")]
    scored = {}
    for trial in trials:
        if trial.feasible:
            scored[Scored(values_of(trial.result.metrics), order=trial.number)] = trial
    front = [scored[score] for score in pareto_front(list(scored), objectives)]
    models = []
    for trial in front:
        values = values_of(trial.result.metrics)
        models.append(ModelResult(chain=trial.chain, metrics=values, ratios=trial.result.ratios))
    return tuple(models)


def _row(trial: Trial, metrics: Sequence[str]) -> dict[str, object]:
    """A row of the table of trials: the figures come before what may be long."""
    result = trial.result
    row: dict[str, object] = {"trial": trial.number}
    values = values_of(result.metrics)
    for name in metrics:
        row |= metric_cells(name, values, result.ratios)
    row["outcome"] = str(result.outcome)
    row["feasible"] = trial.feasible
    row["parameters"] = params_text(result.point)
    row["artifact"] = ""
    if result.candidate:
        row["artifact"] = result.candidate.artifact[:12]
    row["reason"] = result.explanation
    return row


def _plots(result: RunResult, trials: Sequence[Trial], names: Sequence[str]) -> Iterator[Artifact]:
    """Charts of several trials, if the extra `plots` is installed."""
    if len(trials) < 2 or not can_draw():
        return
    objective = first_objective(result)
    charts = [("best-so-far", best_so_far(trials, objective), f"{objective.metric} of each trial, and the best so far")]
    for metric, chart in list(trade_offs(result, trials).items())[:1]:
        charts.append(("pareto", chart, f"{objective.metric} and {metric}; the Pareto front stands out"))
    for kind, chart, description in charts:
        if chart is not None:
            data = base64.b64encode(picture(chart).encode()).decode()
            yield Artifact(artifact_key(kind, *names), "image", f"data:image/svg+xml;base64,{data}", description)


def _show(artifacts: Iterable[Artifact]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import ArtifactCreate
    from prefect.runtime import flow_run

    with get_client(sync_client=True) as client:
        for artifact in artifacts:
            client.create_artifact(ArtifactCreate(flow_run_id=UUID(str(flow_run.id)), **asdict(artifact)))
