"""The gain of a model in one night: how many times better its best model is than the source."""

from __future__ import annotations

from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.words.change import improvement
from autoopt.report.words.figures import first_objective
from autoopt.results import SweepEntry


def ratio_metric(entry: SweepEntry) -> str:
    """The first objective of an entry's run; empty if there was no run, or if the metric reads best as a value."""
    if entry.result is None:
        return ""
    metric = first_objective(entry.result).metric
    return metric if is_ratio_metric(metric) else ""


def ratio_of(entry: SweepEntry, metric: str) -> Estimate | None:
    """The ratio best / source of a metric; None if it was not measured or has no logarithm."""
    if entry.best is None:
        return None
    ratio = entry.best.ratios.get(metric)
    return ratio if ratio is not None and ratio.value > 0 else None


def gain_of(entry: SweepEntry) -> Estimate | None:
    """The factor by which the best model is better than the source, by the first objective: 2 for twice as fast.

    None without a best model, and for objectives that read best as a value, such as an accuracy.
    """
    metric = ratio_metric(entry)
    ratio = ratio_of(entry, metric)
    return None if ratio is None else improvement(metric, ratio)
