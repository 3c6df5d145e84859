"""Compare one model of a sweep with earlier sweeps: better, worse or within the noise, and the possible causes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoopt.metrics import METRICS, Estimate, headline_metrics, is_ratio_metric
from autoopt.results import EntryComparison, MetricChange, RunResult, SweepEntry
from autoopt.results.figures import first_objective, improvement, kind, metric_differences
from autoopt.results.sweep import MISSING, OK
from autoopt.tuning import CHANGES

SAME: Final = "same"
"""Verdict on a model without a change."""


@dataclass(frozen=True)
class EarlierEntry:
    """The same model in an earlier sweep."""

    sweep: str
    """Id of the sweep."""
    entry: SweepEntry
    release: int = 0
    """Number of the release, if this is the released model and not the last good sweep."""


def compare_entry(entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> EntryComparison:
    """Compare an entry with the same model's entries of good sweeps, newest first; a release comes before them."""
    if not earlier:
        return EntryComparison(MISSING if entry.status == MISSING else "new")
    comparison = _compare(entry, earlier)
    return replace(comparison, sweep=earlier[0].sweep, release=earlier[0].release)


def _compare(entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> EntryComparison:
    if entry.status == MISSING:
        return EntryComparison(MISSING)
    last = earlier[0].entry
    works, worked = entry.status == OK, last.status == OK
    changes: list[MetricChange] = []
    verdict = SAME
    if works and worked:
        changes = _changes(entry, earlier)
        verdict = _verdict(changes, _objectives(entry))
    elif works:
        verdict = "works again"
    elif worked:
        verdict = "fails"
    if verdict == SAME:
        return EntryComparison(verdict)
    # The release of a run that no sweep made has no environment.
    causes = differences(last.environment, entry.environment) if last.environment else []
    # Entries of models that failed do not list their inputs.
    inputs = differences(last.inputs, entry.inputs) if last.inputs and entry.inputs else []
    return EntryComparison(verdict, changes=tuple(changes), causes=tuple(causes), other_inputs=tuple(inputs))


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """List the values that changed: `libraries.onnxruntime 1.31.0 -> 1.31.1`."""
    old, new = dict(_flat(before)), dict(_flat(after))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return [f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}" for name in names]


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _nights_with_source(earlier: Sequence[EarlierEntry], source: str) -> list[RunResult]:
    """The results of the last nights that ran the same source model."""
    nights = [one.entry.result for one in earlier if not one.release]
    return [
        night for night in nights[: CHANGES.usual_nights] if night is not None and night.baseline.artifact == source
    ]


def _changes(entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> list[MetricChange]:
    """The metrics of best model, last best model and source model that moved beyond their intervals."""
    result, last = entry.result, earlier[0].entry.result
    assert result is not None, "an entry with status ok has a result"
    assert last is not None, "an entry with status ok has a result"
    what = "released model" if earlier[0].release else "last best model"
    changes = _best_changes(entry, last, result, what)
    nights = _nights_with_source(earlier, result.baseline.artifact)
    for metric in _objectives(entry):
        if kind(metric) == "latency":
            changes += _source_changes(metric, result, nights)
    return changes


def _best_changes(entry: SweepEntry, last: RunResult, result: RunResult, what: str) -> list[MetricChange]:
    """The metrics of the best models that moved beyond their intervals since the run `last`; `what`: its best model."""
    changes = _model_changes("best model", last, result)
    if last.baseline.artifact == result.baseline.artifact:
        if entry.last_best is not None:
            changes += _model_changes(what, last, replace(result, best=entry.last_best))
        return changes
    # Ratios to two source models do not compare. The last best model was measured tonight, paired with the same source.
    changes = [change for change in changes if not change.as_ratio]
    if entry.last_best is not None:
        paired = _model_changes("best model", replace(result, best=entry.last_best), result)
        changes += [change for change in paired if change.as_ratio]
    return changes


def _model_changes(what: str, before: RunResult, after: RunResult) -> list[MetricChange]:
    changed = [d for d in metric_differences(before, after) if d.verdict in ("better", "worse")]
    return [MetricChange(what, d.metric, d.first, d.second, d.as_ratio, d.verdict) for d in changed]


def _source_changes(metric: str, result: RunResult, nights: Sequence[RunResult]) -> list[MetricChange]:
    """A change of the source model's own latency beyond the range of earlier nights."""
    now = _source_estimate(result, metric)
    before = [estimate for night in nights if (estimate := _source_estimate(night, metric)) is not None]
    if now is None or not before:
        return []
    low = min(estimate.low for estimate in before) / (1 + CHANGES.drift)
    high = max(estimate.high for estimate in before) * (1 + CHANGES.drift)
    if low <= now.high and now.low <= high:
        return []
    increased = now.low > high
    verdict = "better"
    if increased == (METRICS[metric].direction == "minimize"):
        verdict = "worse"
    return [MetricChange("source model", metric, Estimate(before[0].value, low, high), now, False, verdict)]


def _source_estimate(result: RunResult, metric: str) -> Estimate | None:
    """The source model's metric with its interval; None if it was not measured, is not finite or the machine was busy.

    On a busy machine only ratios are comparable.
    """
    if result.best is not None and result.best.measured.busy:
        return None
    baseline = result.baseline
    value = baseline.metrics.get(metric)
    if value is None:
        return None
    estimate = baseline.intervals.get(metric, Estimate.exact(value))
    if not all(map(math.isfinite, (estimate.value, estimate.low, estimate.high))):
        return None
    return estimate


def _objectives(entry: SweepEntry) -> tuple[str, ...]:
    objectives = entry.result.objectives if entry.result else ()
    return headline_metrics(objectives)


def _verdict(changes: Sequence[MetricChange], objectives: Sequence[str]) -> str:
    """The objectives decide; another metric counts only if no objective changed."""
    of_objectives = {change.verdict for change in changes if change.metric in objectives}
    verdicts = of_objectives or {change.verdict for change in changes}
    for verdict in ("worse", "better"):
        if verdict in verdicts:
            return verdict
    return SAME


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
