"""The best models of two runs compared: better, worse or within the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autoopt.metrics import Estimate, is_ratio_metric, known_metric
from autoopt.results.figures import metrics_of, model_estimate
from autoopt.results.run import RunResult

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


def differences(first: RunResult, second: RunResult) -> tuple[Difference, ...]:
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
