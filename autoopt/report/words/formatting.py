"""Format numbers, settings, counts, goals, and figures beside their limits for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Objective, known_metric, significant
from autoopt.results import Trial
from autoopt.results.figures import is_quality

STAGES = {"prefect start": "Prefect start-up", "baseline": "baseline", "search": "search", "confirm": "deciding"}
"""The stages of a run, which follow each other, with their names for people."""
FIRST_MEASUREMENT, ALL_MEASUREMENTS = "first measurement", "all measurements"
"""The two origins of a ratio: that of a trial is from its first measurement, that of a result from all together."""
UNMEASURED = "-"
MOST_NAMES = 5
"""Names of a list in a sentence."""
HIDDEN_PHASES = ("total", "prefect start waited for")
MOST_DECIMALS, MOST_DIGITS = 5, 9
"""Digits at which two values that look alike count as equal: decimals of percent, and significant digits of others."""


def metric_text(name: str, value: float | None) -> str:
    """A metric's value with its unit: `0.178 ms`, `409 kB`, `0.9950`; `-` if it was not measured."""
    if value is None:
        return UNMEASURED
    metric = known_metric(name)
    unit = metric.unit if metric else ""
    if unit == "bytes":
        return bytes_text(value)
    if unit in ("fraction", "1") and abs(value) < 1e6:
        return f"{value:.4f}"
    if unit in ("", "1", "fraction", "output unit", "label unit squared"):
        return number_text(value)
    return f"{number_text(value)} {unit}"


def number_text(value: float) -> str:
    """About three significant digits, without an exponent where that is readable."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3 or size >= 1e6:
        return significant(value, 3)
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.4f}"


def bytes_text(value: float) -> str:
    """Bytes in decimal units: `409 kB`."""
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 999.5 or unit == "GB":  # which rounds to 1000
            break
        size /= 1000
    if unit == "B" or abs(size) >= 100:
        return f"{size:.0f} {unit}"
    return f"{size:.3g} {unit}"


def value_text(value: object) -> str:
    """A parameter's value as in YAML's flow style."""
    if isinstance(value, str):
        return one_line(value)
    return one_line(json.dumps(value, sort_keys=True, default=str))


def params_text(params: Mapping[str, Mapping[str, object]]) -> str:
    """Parameters by node, in the order of their names: `session: ...; static: per_channel=true, weight_type=QInt8`."""
    return "; ".join(f"{one_line(node)}: {settings_text(values)}" for node, values in sorted(params.items()) if values)


def settings_text(values: Mapping[str, object]) -> str:
    """Parameters of one node, in the order of their names: `per_channel=true, weight_type=QInt8`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in sorted(values.items()))


def counts_text(counts: Mapping[str, int]) -> str:
    """Trials by outcome: `12: 10 ok, 2 refused` for `{"total": 12, "ok": 10, "refused": 2}`; zeros are left out.

    The `infeasible` ones among the ok trials are counted separately.
    """
    infeasible = counts.get("infeasible", 0)
    others = {name: count for name, count in counts.items() if name not in ("total", "ok", "infeasible")}
    verb = "breaks" if infeasible == 1 else "break"
    named = {"ok": counts.get("ok", 0) - infeasible, **others, f"{verb} a constraint": infeasible}
    parts = [f"{count} {one_line(name)}" for name, count in named.items() if count]
    total = str(counts.get("total", sum(named.values())))
    if parts:
        return f"{total}: {', '.join(parts)}"
    return total


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Time by stage, then that of workers, which overlaps: `41.2 s (search 30.1, other 11.1; in workers: passes 12.0)`.

    The stages add up to the total.
    """
    total = seconds.get("total", sum(seconds.values()))
    measured = {label: seconds[name] for name, label in STAGES.items() if name in seconds}
    if "baseline" in measured and "search" in measured:
        measured["search"] -= measured["baseline"]  # the search measures it first
    # To read models and data and to open the store, before the search; the result is written afterwards.
    measured["other"] = total - sum(measured.values())
    shown = {*STAGES, *HIDDEN_PHASES}
    others = {one_line(name): value for name, value in seconds.items() if name not in shown}
    parts = [_times_text(measured.items())]
    workers = _times_text(sorted(others.items(), key=lambda phase: -phase[1]))
    if workers:
        parts.append(f"in workers: {workers}")
    text = "; ".join(filter(None, parts))
    return f"{total:.1f} s ({text})" if text else f"{total:.1f} s"


def _times_text(times: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in times if value >= 0.05)


def clock_text(seconds: float) -> str:
    """A duration as on a clock: `0:16`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def day_text(seconds: float) -> str:
    """A time on this machine's clock: `2026-11-22 02:00`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def percent(share: float) -> str:
    """`40 %`."""
    return f"{100 * share:.0f} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 trial`, `3 trials`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def first_names(names: Sequence[str]) -> str:
    """The first names of a list that may be long."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def short(identity: str) -> str:
    """The first characters of a digest or an id."""
    return one_line(identity)[:12]


def objective_text(objective: Objective) -> str:
    """`minimize latency_p50`."""
    return f"{objective.goal} {objective.metric}"


def constraint_text(constraint: Constraint) -> str:
    """`accuracy may drop by at most 0.01`."""
    name = constraint.metric
    parts = []
    if constraint.max_drop is not None:
        parts.append(f"may get worse by at most {constraint.max_drop:g}")
    if constraint.min is not None:
        parts.append(f"at least {metric_text(name, constraint.min)}")
    if constraint.max is not None:
        parts.append(f"at most {metric_text(name, constraint.max)}")
    if constraint.min_ratio is not None:
        parts.append(f"at least {constraint.min_ratio:g} times the source's")
    if constraint.max_ratio is not None:
        parts.append(f"at most {constraint.max_ratio:g} times the source's")
    text = f"{name} {', '.join(parts)}"
    if constraint.confidence is not None:
        text += f", with {constraint.confidence:.0%} confidence"
    return text


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
    for constraint in constraints:
        if constraint.metric == metric:
            limits += _limits(constraint, source.get(metric))
    return limits


def _limits(constraint: Constraint, before: float | None) -> list[float]:
    """The values that one constraint allows; `before` is that of the source model."""
    limits = [limit for limit in (constraint.min, constraint.max) if limit is not None]
    if before is None:
        return limits
    limits += [before * ratio for ratio in (constraint.min_ratio, constraint.max_ratio) if ratio is not None]
    if constraint.max_drop is not None:
        known = known_metric(constraint.metric)
        worse = 1 if known is not None and known.direction == "minimize" else -1
        limits.append(before + worse * constraint.max_drop)
    return limits


def trial_limits(metric: str, result: Trial) -> list[float]:
    """The value that a trial's quality must reach, if the constraint that is nearest to being broken is about it."""
    value = result.metrics.get(metric)
    if value is None or not is_quality(metric) or not result.violation:
        return []
    return [value.value + result.violation, value.value - result.violation]
