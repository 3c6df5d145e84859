"""Lasting changes for the worse that no two nights show: a slow drift, or a small step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from statistics import median

from autoopt.metrics import Estimate
from autoopt.report.words.change import ratio_change
from autoopt.report.words.formatting import day_text
from autoopt.results import EntryComparison, MetricChange, SweepEntry
from autoopt.results.figures import improvement
from autoopt.tuning import CHANGES
from autoopt.zoo.change_points import ChangePoint, change_points
from autoopt.zoo.night_history import Dated
from autoopt.zoo.sweep_comparison import SAME, differences, ratio_metric, ratio_of


def lasting_regression(past: Sequence[Dated], entry: SweepEntry) -> EntryComparison | None:
    """Find the newest lasting change of a model's gain, if it is for the worse and nobody was told of it.

    `past` has the model's earlier nights, oldest first; `entry` is tonight's. A change counts as told if the model
    regressed on a night since then, or such a night was accepted. Nights with another source model say nothing. The
    comparison is with the last night before the change.
    """
    metric = ratio_metric(entry)
    if entry.compared.verdict != SAME or ratio_of(entry, metric) is None:
        return None
    comparable = [dated for dated in past if _is_comparable(dated, entry, metric)]
    ratios = _ratios([*map(itemgetter(1), comparable), entry], metric)
    points = change_points(ratios)
    if not points or not _is_worse(metric, points[-1]):
        return None
    first = points[-1].index
    since = comparable[first][0].time
    if _is_told(past, since):
        return None
    begin = points[-2].index if len(points) > 1 else 0
    before, after = median(ratios[begin:first]), median(ratios[first:])
    if not _is_reached(ratios[-CHANGES.min_nights :], before, after):
        return None
    night, last = comparable[first - 1]
    text = ratio_change(metric, Estimate.exact(points[-1].factor))
    what = f"best model, for good {text} since {day_text(since)},"
    return EntryComparison(
        "worse",
        sweep=night.result.sweep,
        changes=(MetricChange(what, metric, Estimate.exact(before), Estimate.exact(after), True, "worse"),),
        causes=tuple(differences(last.environment, entry.environment)),
        other_inputs=tuple(differences(last.inputs, entry.inputs)),
    )


def _is_told(past: Sequence[Dated], since: float) -> bool:
    """True if the model regressed on a night since then, or such a night was accepted."""
    later = [dated for dated in past if dated[0].time >= since]
    return any(night.result.accepted or entry.compared.regressed for night, entry in later)


def _ratios(entries: Sequence[SweepEntry], metric: str) -> list[float]:
    """The ratios of the entries that have one."""
    ratios = [ratio_of(entry, metric) for entry in entries]
    return [ratio.value for ratio in ratios if ratio is not None]


def _is_comparable(dated: Dated, now: SweepEntry, metric: str) -> bool:
    """True if that night measured the same source model by the same metric; other sweeps may repeat stored figures."""
    night, before = dated
    if not night.result.nightly or before.result is None or now.result is None or ratio_of(before, metric) is None:
        return False
    return before.result.baseline.artifact == now.result.baseline.artifact


def _is_worse(metric: str, change: ChangePoint) -> bool:
    better = improvement(metric, Estimate.exact(change.factor)).value
    return better < 1 and abs(math.log(better)) >= math.log1p(CHANGES.relevant)


def _is_reached(newest: Sequence[float], before: float, after: float) -> bool:
    """True if all these nights are nearer to the new level: a level may begin with a night of the old one."""
    middle = math.sqrt(before * after)
    return all((ratio > middle) == (after > before) for ratio in newest)
