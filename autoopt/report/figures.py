"""Decide which metrics are shown, and how: the run's own objectives and constraints come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoopt.metrics import (
    MEDIAN_LATENCY,
    Estimate,
    Kind,
    Objective,
    headline_metrics,
    is_ratio_metric,
    known_metric,
)
from autoopt.report.formatting import metric_text, ratio_text
from autoopt.results import ModelResult, RunResult, TrialResult, values_of

QUALITY_KINDS: tuple[Kind, ...] = ("task", "fidelity", "custom")


def kind(metric: str) -> Kind:
    """The kind of a metric by its name; unknown names are `custom`."""
    known = known_metric(metric)
    if known is None:
        return "custom"
    return known.kind


def is_quality(metric: str) -> bool:
    """True for metrics of the outputs: of a task, of the fidelity to the source, or a user's own."""
    return kind(metric) in QUALITY_KINDS


def first_objective(result: RunResult) -> Objective:
    """The objective that decides first."""
    if not result.objectives:
        # Runs of versions that did not store their objectives.
        return Objective(MEDIAN_LATENCY, "minimize")
    return result.objectives[0]


def metrics_of(result: RunResult) -> tuple[str, ...]:
    """The metrics that a report shows: headlines, then a latency, size and quality, as far as they were measured.

    A latency is shown even if no objective asks for it.
    """
    measured = dict.fromkeys(name for model in result.models for name in model.metrics)
    headlines = headline_metrics(result.objectives, result.constraints)
    others = [name for name in measured if kind(name) not in ("latency", "memory")]
    others.sort(key=is_quality)
    if "latency" not in map(kind, headlines):
        others.insert(0, MEDIAN_LATENCY)
    return tuple(name for name in dict.fromkeys((*headlines, *others)) if name in measured)


def trial_figures(result: TrialResult, headlines: Iterable[str]) -> list[str]:
    """The figures of a trial: its headlines, then the size and the first quality metric."""
    quality = list(filter(is_quality, result.metrics))[:1]
    return figures(dict.fromkeys((*headlines, "size", *quality)), values_of(result.metrics), result.ratios)


def model_figures(model: ModelResult, metrics: Iterable[str]) -> list[str]:
    """The figures of a model for these metrics."""
    return figures(metrics, model.metrics, model.ratios)


def figures(metrics: Iterable[str], values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> list[str]:
    """Figures with their names: `latency_p50 0.301x (0.290..0.312)`, `accuracy 0.9950`, without unmeasured ones."""
    texts = []
    for name in metrics:
        text = figure(name, values, ratios)
        if text:
            texts.append(f"{name} {text}")
    return texts


def figure(metric: str, values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> str:
    """The ratio of a latency, size or memory, the value of any other metric; empty if it was not measured."""
    if is_ratio_metric(metric) and metric in ratios:
        return ratio_text(ratios[metric])
    if metric in values:
        return metric_text(metric, values[metric])
    return ""


def rounded_figure(metric: str, values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> float | str:
    """A metric's figure as a number, for tables that people sort; empty if it was not measured."""
    if is_ratio_metric(metric):
        ratio = ratios.get(metric)
        if ratio is None:
            return ""
        return round(ratio.value, 4)
    if metric in values:
        return round(values[metric], 4)
    return ""


def figure_title(metric: str) -> str:
    """The column title of a metric's figures."""
    if is_ratio_metric(metric):
        return f"{metric} ratio"
    return metric
