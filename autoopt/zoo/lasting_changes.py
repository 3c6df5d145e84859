"""Lasting changes: of level in a series of nights, and those for the worse that no two nights show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from statistics import NormalDist, fmean, median
from typing import Final, TypeAlias

from autoopt.metrics import Estimate
from autoopt.report.words.change import ratio_change
from autoopt.report.words.formatting import day_text
from autoopt.results import EntryComparison, MetricChange, SweepEntry, SweepResult
from autoopt.results.figures import improvement
from autoopt.tuning import CHANGES
from autoopt.zoo.sweep_comparison import SAME, differences, ratio_metric, ratio_of

_NORMAL: Final = NormalDist()
_BOUND: Final = _NORMAL.inv_cdf((1 + CHANGES.calm_share) / 2)
CALM_STEP: Final = 2 * (_NORMAL.pdf(0) - _NORMAL.pdf(_BOUND)) / CHANGES.calm_share
"""Mean of the absolute value of a standard normal variable over the smallest `CHANGES.calm_share` of its values."""


@dataclass(frozen=True)
class StoredNight:
    """A finished sweep with the time of its beginning."""

    time: float
    """Seconds since 1970."""
    result: SweepResult


Dated: TypeAlias = tuple[StoredNight, SweepEntry]
"""A model's entry, and the night that it is of."""


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of level."""

    index: int
    """The first night of the new level."""
    factor: float
    """New level / old level."""


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Find the lasting changes of a positive series, oldest first.

    Optimal partitioning (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE Signal
    Processing Letters 12, 2005), the recursion under PELT (Killick, Fearnhead and Eckley, JASA 107, 2012), on the
    logarithms. The cost of a level is the sum of absolute deviations from its median, which a single outlier moves
    little. A slow drift is found as soon as it has moved the level by more than the noise. There is one value per
    night, the oldest first.

    Returns:
        The changes; empty for fewer than `2 * CHANGES.min_nights` nights.
    """
    logs = list(map(math.log, values))
    if len(logs) < 2 * CHANGES.min_nights:
        return []
    price = CHANGES.penalty * _noise(logs) * math.log(len(logs))
    bounds = [0, *_partition(logs, price), len(logs)]
    levels = [median(logs[begin:end]) for begin, end in pairwise(bounds)]
    points = []
    for index, (before, after) in zip(bounds[1:-1], pairwise(levels), strict=True):
        points.append(ChangePoint(index, math.exp(after - before)))
    return points


def _partition(logs: Sequence[float], price: float) -> list[int]:
    """The beginnings of the levels after the first one, in the cheapest partition."""
    count = len(logs)
    # The first level is free: a series without a change pays no price.
    costs = [-price] + [math.inf] * count
    origins = [0] * (count + 1)
    for end in range(CHANGES.min_nights, count + 1):
        for begin in range(end - CHANGES.min_nights + 1):
            cost = costs[begin] + _deviation(logs[begin:end]) + price
            if cost < costs[end]:
                costs[end], origins[end] = cost, begin
    beginnings = []
    position = origins[count]
    while position > 0:
        beginnings.append(position)
        position = origins[position]
    return beginnings[::-1]


def _deviation(logs: Sequence[float]) -> float:
    """Sum of the absolute deviations from the median."""
    middle = median(logs)
    return sum(abs(value - middle) for value in logs)


def _noise(logs: Sequence[float]) -> float:
    """Standard deviation of the noise, from the steps between nights, which a change of level hardly touches."""
    steps = sorted(abs(after - before) for before, after in pairwise(logs))
    calm = steps[: math.ceil(CHANGES.calm_share * len(steps))]
    deviation = fmean(calm) / CALM_STEP / math.sqrt(2)
    return max(CHANGES.least_noise, deviation * (1 + CHANGES.few_nights / len(steps)))


def entries_by_model(stored: Sequence[StoredNight]) -> dict[str, list[Dated]]:
    """The entries of each model in the order of the nights, by its name."""
    entries: dict[str, list[Dated]] = {}
    for night in stored:
        for entry in night.result.models:
            entries.setdefault(entry.name, []).append((night, entry))
    return entries


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
