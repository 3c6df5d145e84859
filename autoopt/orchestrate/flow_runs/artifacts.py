"""Artifacts of flow runs: tables, plots and ids to look up. The store is the truth; these only display it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact
from prefect.runtime import flow_run

from autoopt.errors import one_line
from autoopt.json_codec import from_json
from autoopt.metrics import Constraint, Objective, headline_metrics
from autoopt.orchestrate.flow_runs.naming import artifact_key
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.orchestrate.server.outages import best_effort
from autoopt.report.change import metric_cells
from autoopt.report.charts import best_so_far, trade_offs
from autoopt.report.drawing import can_draw, picture
from autoopt.report.figures import first_objective
from autoopt.report.formatting import params_text
from autoopt.report.run import caveats, run_tables
from autoopt.report.table import markdown
from autoopt.report.verdict import verdict
from autoopt.results import ModelResult, RunResult, Trial, values_of
from autoopt.search.pareto import Scored, pareto_front
from autoopt.store import Store
from autoopt.store.finished import finished_trials

if TYPE_CHECKING:
    import altair as alt

ROWS = 200
"""Maximum number of trials in a table; the store has them all."""


@best_effort
def show_chain(store: Store, run: str, chain: str, *names: str) -> None:
    """Show the finished trials of a chain: a table, a plot of the best so far, and one of its Pareto front.

    Args:
        store: The store.
        run: Id of the run.
        chain: Id of the chain.
        names: Names of run and chain, for the artifacts' keys.
    """
    trials = finished_trials(store, run, chain)
    if not trials:
        return
    result = _goal(store, run)
    description = f"Trials of run {run}; autoopt lineage and apply take the artifacts' ids"
    metrics = _metrics(result)
    rows = [_row(trial, metrics) for trial in trials[:ROWS]]
    _make(create_table_artifact, key=artifact_key("trials", *names), table=rows, description=description)
    _plots(RunResult(run, "", pareto=_front(trials, result), objectives=result.objectives), trials, names)


@best_effort
def show_result(store: Store, result: RunResult, name: str) -> None:
    """Show the result of a run: its answer and front, the best so far, and the trade-off; `name` is the run's."""
    text = result_markdown(result, without_userinfo(flow_run.ui_url or ""))
    _make(create_markdown_artifact, key=artifact_key("result", name), markdown=text, description=verdict(result))
    _plots(result, finished_trials(store, result.run), (name,))


def result_markdown(result: RunResult, page: str = "") -> str:
    """A run's answer in a sentence, its models with the run's own metrics, caveats, and where there is more.

    `page` is the address of the flow run.
    """
    parts = [f"**{one_line(verdict(result))}**"]
    for table in run_tables(result):
        if len(result.targets) > 1:
            parts.append(f"*{table.title}*")
        parts.append(markdown(table))
    notes = [*caveats(result), *result.notes]
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


def _metrics(result: RunResult) -> list[str]:
    return list(dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size"]))


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


def _plots(result: RunResult, trials: Sequence[Trial], names: Sequence[str]) -> None:
    """Show charts if the extra `plots` is installed."""
    if not can_draw():
        return
    objective = first_objective(result)
    description = f"{objective.metric} of each trial, and the best so far"
    _image(artifact_key("best-so-far", *names), best_so_far(trials, objective), description)
    for metric, chart in list(trade_offs(result, trials).items())[:1]:
        description = f"{objective.metric} and {metric}; the Pareto front stands out"
        _image(artifact_key("pareto", *names), chart, description)


def _image(key: str, chart: alt.LayerChart | None, description: str) -> None:
    if chart is not None:
        data = base64.b64encode(picture(chart).encode()).decode()
        url = f"data:image/svg+xml;base64,{data}"
        _make(create_image_artifact, key=key, image_url=url, description=description)


def _make(create: Callable[..., object], **values: object) -> None:
    """Create an artifact now, even in a thread of an asynchronous flow, where Prefect would return a coroutine."""
    create(**values, _sync=True)
