"""Objectives and constraints in words."""

from __future__ import annotations

from autoopt.metrics import Constraint, Objective
from autoopt.report.formatting import metric_text


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
