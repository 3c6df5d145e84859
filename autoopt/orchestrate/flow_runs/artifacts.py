"""Artifacts of flow runs: tables, plots and ids to look up. The store is the truth; these only display it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

from autoopt.json_codec import from_json
from autoopt.metrics import Constraint, Objective, headline_metrics
from autoopt.orchestrate.server.outages import best_effort
from autoopt.report.charts import best_so_far, trade_offs
from autoopt.report.drawing import can_draw, picture
from autoopt.report.figures import figure, figure_title, first_objective, rounded_figure
from autoopt.report.formatting import params_text
from autoopt.results import ModelResult, RunResult, Trial, values_of
from autoopt.search.pareto import Scored, pareto_front
from autoopt.store import Store
from autoopt.store.finished import finished_trials

if TYPE_CHECKING:
    import altair as alt

ROWS = 200
"""Maximum number of trials in a table; the store has them all."""


@best_effort
def show_chain(store: Store, run: str, chain: str) -> None:
    """Show the finished trials of a chain: a table, a plot of the best so far, and one of its Pareto front."""
    trials = finished_trials(store, run, chain)
    if not trials:
        return
    result = _goal(store, run)
    description = f"Trials of run {run}; autoopt lineage and apply take the artifacts' ids"
    metrics = _metrics(result)
    rows = [_row(trial, metrics) for trial in trials[:ROWS]]
    _make(create_table_artifact, key="trials", table=rows, description=description)
    _plots(RunResult(run, "", pareto=_front(trials, result), objectives=result.objectives), trials)


@best_effort
def show_result(store: Store, result: RunResult) -> None:
    """Show the result of a run: its best model and front, the best so far, and the trade-off."""
    markdown = result_markdown(result)
    _make(create_markdown_artifact, key="result", markdown=markdown, description="The result of the run")
    _plots(result, finished_trials(store, result.run))


def result_markdown(result: RunResult) -> str:
    """A run's best model and Pareto front as Markdown, with the commands that show more."""
    metrics = _metrics(result)
    lines = [f"| model | chain | {' | '.join(figure_title(name) for name in metrics)} |"]
    lines.append("|---" * (2 + len(metrics)) + "|")
    models = [("front", model) for model in result.pareto]
    if result.best is not None:
        models.insert(0, ("best", result.best))
    for label, model in models:
        cells = [figure(name, model.metrics, model.ratios) for name in metrics]
        lines.append(f"| {label} `{model.artifact[:12]}` | {model.chain} | {' | '.join(cells)} |")
    commands = f"`autoopt best {result.run}`, `autoopt report {result.run}`"
    return "\n".join([f"Run `{result.run}`: {result.status}; {commands}", "", *lines])


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
    result = trial.result
    row: dict[str, object] = {
        "trial": trial.number,
        "parameters": params_text(result.point),
        "outcome": str(result.outcome),
        "feasible": result.violation <= 0,
    }
    values = values_of(result.metrics)
    for name in metrics:
        row[figure_title(name)] = rounded_figure(name, values, result.ratios)
    row["artifact"] = ""
    if result.candidate:
        row["artifact"] = result.candidate.artifact[:12]
    row["said"] = result.explanation
    return row


def _plots(result: RunResult, trials: Sequence[Trial]) -> None:
    """Show charts if the extra `plots` is installed."""
    if not can_draw():
        return
    objective = first_objective(result)
    _image("best-so-far", best_so_far(trials, objective), f"{objective.metric} of each trial, and the best so far")
    for metric, chart in list(trade_offs(result, trials).items())[:1]:
        _image("pareto", chart, f"{objective.metric} and {metric}; the Pareto front stands out")


def _image(key: str, chart: alt.LayerChart | None, description: str) -> None:
    if chart is not None:
        data = base64.b64encode(picture(chart).encode()).decode()
        url = f"data:image/svg+xml;base64,{data}"
        _make(create_image_artifact, key=key, image_url=url, description=description)


def _make(create: Callable[..., object], **values: object) -> None:
    """Create an artifact now, even in a thread of an asynchronous flow, where Prefect would return a coroutine."""
    create(**values, _sync=True)
