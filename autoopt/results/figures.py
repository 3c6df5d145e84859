"""Figures of results: the metrics that a run is about, their estimates, and which of two values is better.

Ratios are candidate / source. Latencies, throughput, sizes and memory are compared by their ratios, others by values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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


Verdict: TypeAlias = Literal["better", "worse", "same", "only in first", "only in second"]
SLACK = 0.005
"""Relative difference that is ignored, also between exact values."""


@dataclass(frozen=True)
class Difference:
    """One metric of two best models. Times and sizes are compared as ratios to each run's own source model."""

    metric: str
    first: Estimate | None
    second: Estimate | None
    as_ratio: bool
    verdict: Verdict
    """Of the second run compared with the first; `same` if their intervals overlap."""


def metric_differences(first: RunResult, second: RunResult) -> tuple[Difference, ...]:
    """Compare the best models of two runs; unknown metrics are assumed to be better when lower."""
    if first.best is None and second.best is None:
        return ()
    metrics = dict.fromkeys((*metrics_of(first), *metrics_of(second)))
    found = []
    for metric in metrics:
        models = (first.best, second.best)
        before, after = (None if model is None else model_estimate(model, metric) for model in models)
        found.append(Difference(metric, before, after, is_ratio_metric(metric), _verdict(metric, before, after)))
    return tuple(found)


def _verdict(metric: str, before: Estimate | None, after: Estimate | None) -> Verdict:
    if before is None:
        return "only in second"
    if after is None:
        return "only in first"
    slack = SLACK * max(abs(before.value), abs(after.value))
    if before.low <= after.high + slack and after.low <= before.high + slack:
        return "same"
    built_in = known_metric(metric)
    minimize = built_in is None or built_in.direction == "minimize"
    if (after.value < before.value) == minimize:
        return "better"
    return "worse"
