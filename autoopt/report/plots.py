"""The plots of a search: the first objective over the trials, and against each other metric that matters."""

from __future__ import annotations

from collections.abc import Sequence

from autoopt.metrics import Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.report.figures import figure_title, first_objective, is_quality, metrics_of
from autoopt.report.formatting import metric_text, params_text, ratio_text
from autoopt.report.run import chain_text
from autoopt.report.svg import Mark, Plot
from autoopt.results import ModelResult, RunResult, Trial

QUALITY_PLOTS = 2
"""Number of quality metrics that get a plot of their own, beside those of objectives and constraints."""


def best_so_far(trials: Sequence[Trial], objective: Objective) -> Plot:
    """Plot the first objective of each trial, and the best feasible one so far."""
    marks: list[Mark] = []
    steps: list[tuple[float, float]] = []
    best: float | None = None
    for trial in trials:
        estimate = _trial_estimate(trial, objective.metric)
        if estimate is None:
            continue
        style = "bad"
        if trial.feasible:
            style = "good"
        marks.append(Mark(trial.number, estimate.value, style, _hover(trial, objective.metric, estimate)))
        if trial.feasible and (best is None or is_better(estimate.value, best, objective)):
            best = estimate.value
        if best is not None:
            steps.append((float(trial.number), best))
    return Plot("trial", figure_title(objective.metric), tuple(marks), tuple(steps))


def is_better(value: float, best: float, objective: Objective) -> bool:
    """True if a value of the objective's metric is better than the best one so far."""
    if objective.goal == "maximize":
        return value > best
    return value < best


def trade_offs(result: RunResult, trials: Sequence[Trial]) -> dict[str, Plot]:
    """Plots of the first objective against the others, the constraints, the size and quality, by metric."""
    objective = first_objective(result).metric
    quality = list(filter(is_quality, metrics_of(result)))[:QUALITY_PLOTS]
    others = dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size", *quality])
    return {name: trade_off(result, trials, name) for name in others if name != objective}


def trade_off(result: RunResult, trials: Sequence[Trial], metric: str) -> Plot:
    """Plot the first objective of every trial against `metric`; the source and the Pareto front stand out."""
    objective = first_objective(result).metric
    marks: list[Mark] = []

    def add(style: str, label: str, x: Estimate | None, y: Estimate | None) -> None:
        if x is not None and y is not None:
            marks.append(Mark(x.value, y.value, style, label, x.low, x.high))

    for trial in trials:
        x = _trial_estimate(trial, objective)
        add("good" if trial.feasible else "bad", _hover(trial, objective, x), x, _trial_estimate(trial, metric))
    for model in result.pareto:
        add("front", chain_text(model), _model_estimate(model, objective), _model_estimate(model, metric))
    if marks:
        source = result.baseline.model
        add("source", "source", _model_estimate(source, objective), _model_estimate(source, metric))
    return Plot(figure_title(objective), figure_title(metric), tuple(marks))


def _trial_estimate(trial: Trial, metric: str) -> Estimate | None:
    """The ratio of a latency, size or memory, the value of any other metric; None if it was not measured."""
    result = trial.result
    if is_ratio_metric(metric):
        return result.ratios.get(metric)
    return result.metrics.get(metric)


def _model_estimate(model: ModelResult, metric: str) -> Estimate | None:
    if is_ratio_metric(metric):
        return model.ratios.get(metric)
    if metric not in model.metrics:
        return None
    return model.intervals.get(metric, Estimate.exact(model.metrics[metric]))


def _hover(trial: Trial, metric: str, estimate: Estimate | None) -> str:
    text = f"trial {trial.number}: {trial.chain}"
    params = params_text(trial.result.point)
    if params:
        text = f"{text} [{params}]"
    if estimate is None:
        return text
    value = ratio_text(estimate) if is_ratio_metric(metric) else metric_text(metric, estimate.value)
    return f"{text}, {value}"
