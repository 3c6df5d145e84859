"""The plots of a search: the first objective over the trials, and against each other metric that matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoopt.metrics import Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.report.figures import figure_title, first_objective, is_quality, metrics_of
from autoopt.report.formatting import metric_text, params_text, ratio_text
from autoopt.report.run import chain_text
from autoopt.report.svg import Mark, Plot
from autoopt.results import RunResult, Trial

QUALITY_PLOTS = 2
"""Number of quality metrics that get a plot of their own, beside those of objectives and constraints."""


def best_so_far(trials: Sequence[Trial], objective: Objective) -> Plot:
    """Plot the first objective of each trial, and the best feasible one so far."""
    marks: list[Mark] = []
    steps: list[tuple[float, float]] = []
    best: float | None = None
    for trial in trials:
        estimate = _estimate(trial, objective.metric)
        if estimate is None:
            continue
        style = "good" if trial.feasible else "bad"
        marks.append(Mark(trial.number, estimate.value, style, _hover(trial, objective.metric, estimate)))
        if trial.feasible:
            values = [estimate.value] if best is None else [best, estimate.value]
            best = max(values) if objective.goal == "maximize" else min(values)
        if best is not None:
            steps.append((float(trial.number), best))
    return Plot("trial", figure_title(objective.metric), tuple(marks), tuple(steps))


def trade_offs(result: RunResult, trials: Sequence[Trial]) -> dict[str, Plot]:
    """Plots of the first objective against the others, the constraints, the size and quality, by metric."""
    objective = first_objective(result).metric
    quality = [name for name in metrics_of(result) if is_quality(name)][:QUALITY_PLOTS]
    others = dict.fromkeys([*headline_metrics(result.objectives, result.constraints), "size", *quality])
    return {name: trade_off(result, trials, name) for name in others if name != objective}


def trade_off(result: RunResult, trials: Sequence[Trial], metric: str) -> Plot:
    """Plot the first objective of every trial against `metric`; the source and the Pareto front stand out."""
    objective = first_objective(result).metric
    marks: list[Mark] = []
    for trial in trials:
        x, y = _estimate(trial, objective), _estimate(trial, metric)
        if x is not None and y is not None:
            style = "good" if trial.feasible else "bad"
            marks.append(Mark(x.value, y.value, style, _hover(trial, objective, x), x.low, x.high))
    for model in result.pareto:
        x = _of(objective, model.intervals, model.ratios, model.metrics)
        y = _of(metric, model.intervals, model.ratios, model.metrics)
        if x is not None and y is not None:
            marks.append(Mark(x.value, y.value, "front", chain_text(model), x.low, x.high))
    source = result.baseline.model
    x = _of(objective, source.intervals, source.ratios, source.metrics)
    y = _of(metric, source.intervals, source.ratios, source.metrics)
    if marks and x is not None and y is not None:
        marks.append(Mark(x.value, y.value, "source", "source"))
    return Plot(figure_title(objective), figure_title(metric), tuple(marks))


def _estimate(trial: Trial, metric: str) -> Estimate | None:
    return _of(metric, trial.result.metrics, trial.result.ratios, {})


def _of(
    metric: str, intervals: Mapping[str, Estimate], ratios: Mapping[str, Estimate], values: Mapping[str, float]
) -> Estimate | None:
    """The ratio of a latency, size or memory, the value of any other metric; None if it was not measured."""
    if is_ratio_metric(metric):
        return ratios.get(metric)
    if metric in intervals:
        return intervals[metric]
    return Estimate.exact(values[metric]) if metric in values else None


def _hover(trial: Trial, metric: str, estimate: Estimate) -> str:
    text = f"trial {trial.number}: {trial.chain}"
    params = params_text(trial.result.point)
    if params:
        text = f"{text} [{params}]"
    value = ratio_text(estimate) if is_ratio_metric(metric) else metric_text(metric, estimate.value)
    return f"{text}, {value}"
