"""Decide which metrics are shown, and how: the run's own objectives and constraints come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoopt.metrics import Constraint, Estimate, Kind, Objective, known_metric
from autoopt.report.formatting import metric_text, ratio_text
from autoopt.results import ModelResult, RunResult, TrialResult

RATIO_KINDS: tuple[Kind, ...] = ("latency", "size", "memory")
"""Kinds of metrics that are shown as ratios to the source."""
QUALITY_KINDS: tuple[Kind, ...] = ("task", "fidelity", "custom")
DEFAULT_HEADLINES = ("latency_p50",)
"""Shown for runs of versions that did not store their objectives."""


def kind(metric: str) -> Kind:
    """The kind of a metric by its name; unknown names are `custom`."""
    known = known_metric(metric)
    return known.kind if known else "custom"


def is_quality(metric: str) -> bool:
    return kind(metric) in QUALITY_KINDS


def headlines(objectives: Sequence[Objective], constraints: Sequence[Constraint]) -> tuple[str, ...]:
    """The metrics of a run's objectives, then of its constraints, each once."""
    names = [objective.metric for objective in objectives] or list(DEFAULT_HEADLINES)
    names += [constraint.metric for constraint in constraints]
    return tuple(dict.fromkeys(names))


def first_objective(result: RunResult) -> Objective:
    """The objective that decides first."""
    if result.objectives:
        return result.objectives[0]
    return Objective(DEFAULT_HEADLINES[0], "minimize")


def metrics_of(result: RunResult) -> tuple[str, ...]:
    """The metrics that a report shows: headlines, then a latency, size and quality, as far as they were measured.

    A latency is shown even if no objective asks for it.
    """
    measured = dict.fromkeys(name for model in result.models for name in model.metrics)
    asked = headlines(result.objectives, result.constraints)
    others = [name for name in measured if kind(name) not in ("latency", "memory")]
    others.sort(key=is_quality)
    if not any(kind(name) == "latency" for name in asked):
        others.insert(0, "latency_p50")
    return tuple(name for name in dict.fromkeys((*asked, *others)) if name in measured)


def trial_figures(result: TrialResult, asked: Iterable[str]) -> list[str]:
    """The figures of a trial: those asked for, then the size and the first quality metric."""
    quality = [name for name in result.metrics if is_quality(name)][:1]
    values = {name: estimate.value for name, estimate in result.metrics.items()}
    return figures(dict.fromkeys((*asked, "size", *quality)), values, result.ratios)


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
    if kind(metric) in RATIO_KINDS and metric in ratios:
        return ratio_text(ratios[metric])
    if metric in values:
        return metric_text(metric, values[metric])
    return ""


def figure_title(metric: str) -> str:
    """The column title of a metric's figures."""
    return f"{metric} ratio" if kind(metric) in RATIO_KINDS else metric


def rounded_figure(metric: str, values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> float | str:
    """A metric's figure as a number, for tables that people sort; empty if it was not measured."""
    if kind(metric) in RATIO_KINDS:
        return round(ratios[metric].value, 4) if metric in ratios else ""
    return round(values[metric], 4) if metric in values else ""
