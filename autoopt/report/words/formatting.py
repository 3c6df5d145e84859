"""Format numbers, settings, counts and goals for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence

from autoopt.errors import one_line
from autoopt.metrics import Constraint, Objective, known_metric, significant

STAGES = {"prefect start": "Prefect start-up", "baseline": "baseline", "search": "search", "confirm": "deciding"}
"""The stages of a run, which follow each other, with their names for people."""
FIRST_MEASUREMENT, ALL_MEASUREMENTS = "first measurement", "all measurements"
"""The two origins of a ratio: that of a trial is from its first measurement, that of a result from all together."""
UNMEASURED = "-"
MOST_NAMES = 5
"""Names of a list in a sentence."""
HIDDEN_PHASES = ("total", "prefect start waited for")


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
