"""What the run is after, with the defaults filled in and said aloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoopt.engine.work.context import Goal
from autoopt.metrics import Constraint, Metric, Objective, get_metric

LATENCY = ("latency_p50", "latency_p90", "latency_p99", "latency_mean", "throughput")
TASK_METRIC = {"class": "accuracy", "value": "r2", "tensor": "psnr"}
"""The default task metric by kind of label: class ids, one number an item, a whole tensor an item."""
DEFAULT_QUALITY = {
    "accuracy": Constraint("accuracy", max_drop=0.01),
    "r2": Constraint("r2", max_drop=0.01),
    "psnr": Constraint("psnr", max_drop=0.5),
    "cosine": Constraint("cosine", min=0.99),
}


def make_goal(
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint] | None,
    data: Mapping[str, Any] | None,
    custom: Mapping[str, Metric] | None = None,
    more: Sequence[str] = (),
) -> tuple[Goal, list[str]]:
    """Objectives, constraints and the metrics to measure; and notes on what was added.

    Args:
        constraints: None where the user gave none; an empty sequence turns the default quality constraint off.
        more: further metrics to measure.
        data: description of the evaluation data (`labels`, `label_kind`), None where there is none.
    """
    notes: list[str] = []
    labelled = bool(data and data.get("labels"))
    usual = TASK_METRIC.get(str((data or {}).get("label_kind")), "accuracy") if labelled else "cosine"
    wanted = list(objectives) or [Objective("latency_p50", "minimize")]
    bounds = list(constraints or ())
    kinds = {get_metric(c.metric, custom).kind for c in bounds}
    if (constraints is None or bounds) and not kinds & {"task", "fidelity", "custom"}:
        bounds.append(DEFAULT_QUALITY[usual])
        notes.append(f"no quality constraint given: {_say(DEFAULT_QUALITY[usual])} is required")
    named = [*(c.metric for c in bounds), *(o.metric for o in wanted)]
    asked = [n for n in named if get_metric(n, custom).kind in ("task", "custom")]
    quality = asked[0] if asked else usual
    names = [*(o.metric for o in wanted), *(c.metric for c in bounds), "size", *LATENCY, quality, *more]
    if not labelled:
        names += ["max_abs_error", "top1_agreement"]
    metrics = tuple(get_metric(name, custom) for name in dict.fromkeys(names))
    axes = {o.metric: o for o in wanted}
    for name in ("size", quality):
        axes.setdefault(name, Objective(name, get_metric(name, custom).direction))
    return Goal(tuple(wanted), tuple(bounds), metrics, tuple(axes.values()), dict(custom or {})), notes


def _say(constraint: Constraint) -> str:
    if constraint.max_drop is not None:
        return f"a drop in {constraint.metric} of at most {constraint.max_drop}"
    return f"{constraint.metric} of at least {constraint.min}"
