"""Figures of results: the metrics that a run is about, their estimates, and which of two values is better.

Ratios are candidate / source. Latencies, throughput, sizes and memory are compared by their ratios, others by values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoopt.metrics import (
    FIRST_TOKEN,
    MEDIAN_LATENCY,
    TOKEN_RATE,
    Direction,
    Estimate,
    Kind,
    Objective,
    headline_metrics,
    is_ratio_metric,
    known_metric,
)
from autoopt.results.model import ModelResult
from autoopt.results.run import RunResult
from autoopt.results.trial import Trial

DEFAULT_OBJECTIVE: Final = Objective(MEDIAN_LATENCY, "minimize")
QUALITY_KINDS: Final[Sequence[Kind]] = ("task", "fidelity", "custom")


def kind(metric: str) -> Kind:
    """The kind of a metric by its name; unknown names are `custom`."""
    built_in = known_metric(metric)
    if built_in is None:
        return "custom"
    return built_in.kind


def is_quality(metric: str) -> bool:
    """True for metrics of the outputs: of a task, of the fidelity to the source, or a user's own."""
    return kind(metric) in QUALITY_KINDS


def first_objective(result: RunResult) -> Objective:
    """The objective that decides first."""
    return next(iter(result.objectives), DEFAULT_OBJECTIVE)


def metrics_of(result: RunResult) -> tuple[str, ...]:
    """The metrics that a report shows: headlines, then a latency, size and quality, if measured.

    A latency is shown even if no objective asks for it, and the time of a prompt next to tokens per second.
    """
    measured = dict.fromkeys(name for model in result.models for name in model.metrics)
    headlines = headline_metrics(result.objectives, result.constraints)
    others = [name for name in measured if kind(name) not in ("latency", "memory")]
    others.sort(key=is_quality)
    if "latency" not in map(kind, headlines):
        others.insert(0, MEDIAN_LATENCY)
    if TOKEN_RATE in headlines:
        others.insert(0, FIRST_TOKEN)
    return tuple(name for name in dict.fromkeys((*headlines, *others)) if name in measured)


def trial_estimate(result: Trial, metric: str) -> Estimate | None:
    """The ratio of a latency, size or memory, the value of any other metric; None if it was not measured."""
    if is_ratio_metric(metric):
        return result.ratios.get(metric)
    return result.metrics.get(metric)


def model_estimate(model: ModelResult, metric: str) -> Estimate | None:
    """The same for a model."""
    if is_ratio_metric(metric):
        return model.ratios.get(metric)
    if metric in model.intervals:
        return model.intervals[metric]
    if metric in model.metrics:
        return Estimate.exact(model.metrics[metric])
    return None


def is_better(value: float, best: float, goal: Direction) -> bool:
    """True if a value is better than the best one so far."""
    if goal == "maximize":
        return value > best
    return value < best


def improvement(metric: str, ratio: Estimate) -> Estimate:
    """The factor by which a candidate is better than the source: 2 for twice as fast, or half the size."""
    built_in = known_metric(metric)
    rises = built_in is not None and built_in.direction == "maximize"
    return ratio if rises else ratio.inverse()
