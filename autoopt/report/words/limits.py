"""Figures beside their limits: as many digits as show on which side of a limit a value lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoopt.metrics import Constraint, known_metric, significant
from autoopt.report.words.formatting import metric_text
from autoopt.results import Trial
from autoopt.results.figures import is_quality

MOST_DECIMALS, MOST_DIGITS = 5, 9
"""Digits at which two values that look alike count as equal: decimals of percent, and significant digits of others."""


def figure_text(metric: str, value: float | None, decimals: int = 1, limits: Iterable[float] = ()) -> str:
    """A metric's value for people: shares in percent, `75.2 %`, others with their unit; `-` if it was not measured.

    It gets more digits while it looks like one of the limits without being equal to it: `97.96 %` beside one of 98 %.
    """
    if value is None:
        return metric_text(metric, None)
    exact = _text(metric, value, decimals, MOST_DIGITS)
    others = [limit for limit in limits if _text(metric, limit, decimals, MOST_DIGITS) != exact]
    more = 0
    while any(_text(metric, limit, decimals, more) == _text(metric, value, decimals, more) for limit in others):
        more += 1
    return _text(metric, value, decimals, more)


def _text(metric: str, value: float, decimals: int, more: int) -> str:
    """The value with `more` digits than usual."""
    known = known_metric(metric)
    unit = known.unit if known is not None else ""
    if unit == "fraction":
        return f"{100 * value:.{min(decimals + more, MOST_DECIMALS)}f} %"
    if not more:
        return metric_text(metric, value)
    if unit == "bytes":
        return f"{value:.0f} bytes"
    text = significant(value, min(3 + more, MOST_DIGITS))
    return text if known is None or unit in ("1", "output unit") else f"{text} {unit}"


def limits_of(metric: str, constraints: Iterable[Constraint], source: Mapping[str, float]) -> list[float]:
    """The values of a metric that constraints allow at least or at most; `source` has those of the source model."""
    limits: list[float] = []
    known, before = known_metric(metric), source.get(metric)
    for constraint in constraints:
        if constraint.metric != metric:
            continue
        limits += [limit for limit in (constraint.min, constraint.max) if limit is not None]
        if before is None:
            continue
        limits += [before * ratio for ratio in (constraint.min_ratio, constraint.max_ratio) if ratio is not None]
        if constraint.max_drop is not None:
            worse = 1 if known is not None and known.direction == "minimize" else -1
            limits.append(before + worse * constraint.max_drop)
    return limits


def trial_limits(metric: str, result: Trial) -> list[float]:
    """The value that a trial's quality must reach, if the constraint that is nearest to being broken is about it."""
    value = result.metrics.get(metric)
    if value is None or not is_quality(metric) or not result.violation:
        return []
    return [value.value + result.violation, value.value - result.violation]
