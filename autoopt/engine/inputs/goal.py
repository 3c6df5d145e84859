"""The goal of a run: what the user asked for, with defaults filled in and reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoopt.engine.work.problem import Goal
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE, Constraint, Metric, Objective, get_metric
from autoopt.spec import DagSpec

TASK_METRIC = {"class": "accuracy", "value": "r2", "tensor": "psnr"}
"""Default task metric by kind of label: class ids, one number per item, a whole tensor per item."""
UNLABELLED_METRIC = "cosine"
"""Default quality metric without labels."""
DEFAULT_QUALITY = {
    "accuracy": Constraint("accuracy", max_drop=0.01),
    "r2": Constraint("r2", max_drop=0.01),
    "psnr": Constraint("psnr", max_drop=0.5),
    "cosine": Constraint("cosine", min=0.99),
}
"""Default quality constraint by metric."""


@dataclass(frozen=True)
class GoalRequest:
    """The goal as the user gave it."""

    objectives: Sequence[Objective] = ()
    constraints: Sequence[Constraint] | None = None
    """None for the default quality constraint, empty for none at all."""
    extra_metrics: Sequence[str] = ()
    """Further metrics to measure."""
    custom: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics that the user script defines."""

    @staticmethod
    def of(spec: DagSpec, custom: Mapping[str, Metric]) -> GoalRequest:
        """The goal that a DAG states."""
        objectives: list[Objective] = []
        for objective in spec.objectives:
            direction = custom[objective.metric].direction if objective.metric in custom else "maximize"
            objectives.append(objective.objective(direction))
        constraints = None
        if spec.constraints is not None:
            constraints = [constraint.constraint() for constraint in spec.constraints]
        extra: list[str] = []
        for pass_spec in spec.passes.values():
            extra += [objective.metric for objective in pass_spec.objectives or ()]
        return GoalRequest(objectives, constraints, extra, custom)


def make_goal(request: GoalRequest, data: Mapping[str, Any] | None) -> tuple[Goal, list[str]]:
    """Fill in the defaults.

    Args:
        request: The goal as the user gave it.
        data: Description of the evaluation data (`labels`, `label_kind`); None without data.

    Returns:
        The goal, and notes on the defaults.
    """
    custom = request.custom
    default_quality = UNLABELLED_METRIC
    if data and data.get("labels"):
        default_quality = TASK_METRIC.get(str(data.get("label_kind")), "accuracy")
    objectives = list(request.objectives) or [Objective(MEDIAN_LATENCY, "minimize")]
    constraints = list(request.constraints or ())
    notes: list[str] = []
    if _needs_quality_constraint(request):
        constraints.append(DEFAULT_QUALITY[default_quality])
        notes.append(f"no quality constraint given; requiring {_describe(DEFAULT_QUALITY[default_quality])}")

    quality = _first_task_metric([*constraints, *objectives], custom) or default_quality
    criteria: list[Objective | Constraint] = [*objectives, *constraints]
    names = [criterion.metric for criterion in criteria]
    names += ["size", *STEADY_STATE, quality, *request.extra_metrics]
    if default_quality == UNLABELLED_METRIC:
        names += ["max_abs_error", "top1_agreement"]
    goal = Goal(
        objectives=tuple(objectives),
        constraints=tuple(constraints),
        metrics=tuple(get_metric(name, custom) for name in dict.fromkeys(names)),
        front=_front(objectives, quality, custom),
        custom=dict(custom),
    )
    return goal, notes


def _needs_quality_constraint(request: GoalRequest) -> bool:
    """True unless a constraint limits the quality, or an explicitly empty list turns the default off."""
    if request.constraints is None:
        return True
    kinds = {get_metric(constraint.metric, request.custom).kind for constraint in request.constraints}
    return bool(kinds) and not kinds & {"task", "fidelity", "custom"}


def _first_task_metric(criteria: Sequence[Constraint | Objective], custom: Mapping[str, Metric]) -> str | None:
    for criterion in criteria:
        if get_metric(criterion.metric, custom).kind in ("task", "custom"):
            return criterion.metric
    return None


def _front(objectives: Sequence[Objective], quality: str, custom: Mapping[str, Metric]) -> tuple[Objective, ...]:
    """The objectives of the Pareto front: those of the user, the size and a quality."""
    front = {objective.metric: objective for objective in objectives}
    for name in ("size", quality):
        front.setdefault(name, Objective(name, get_metric(name, custom).direction))
    return tuple(front.values())


def _describe(constraint: Constraint) -> str:
    if constraint.max_drop is not None:
        return f"a drop in {constraint.metric} of at most {constraint.max_drop}"
    return f"{constraint.metric} of at least {constraint.min}"
