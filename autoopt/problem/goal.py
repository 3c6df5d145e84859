"""The goal of a run: what the user asked for, with defaults filled in and reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.measure.constraints import items_to_resolve, share_resolution
from autoopt.metrics import (
    AGREEMENT,
    FIRST_TOKEN,
    MEDIAN_LATENCY,
    PER_INFERENCE,
    Constraint,
    Metric,
    Objective,
    default_objective,
    get_metric,
)
from autoopt.option_names import option
from autoopt.problem.problem import Goal
from autoopt.spec import DagSpec

TASK_METRIC = {"token": "perplexity", "class": "accuracy", "value": "r2", "tensor": "psnr"}
"""Default task metric by kind of label: next tokens, class ids, one number per item, a whole tensor per item."""
DEFAULT_QUALITY = {
    "accuracy": Constraint("accuracy", max_drop=0.01),
    "r2": Constraint("r2", max_drop=0.01),
    "psnr": Constraint("psnr", max_drop=0.5),
    "si_sdr": Constraint("si_sdr", max_drop=0.3),
    "perplexity": Constraint("perplexity", max_ratio=1.02),
    AGREEMENT: Constraint(AGREEMENT, min=0.98),
}
"""Default quality constraint by metric; `benchmarks/quality` calibrates the one for data without labels."""
BESIDE = {AGREEMENT: ("relative_l2", "max_abs_error")}
"""Metrics that are measured beside a default one."""
DEFAULT_METRICS: Final = (
    *(*DEFAULT_QUALITY, "balanced_accuracy", *BESIDE[AGREEMENT]),
    *(FIRST_TOKEN, "size", *PER_INFERENCE),
)
"""Metrics that are measured or limited though the user does not name them."""
RARE: Final = 5
"""A class is rare if it has fewer items than so many times the drop in accuracy that is accepted."""

Minimize: TypeAlias = Literal["latency", "size", "memory"]
MINIMIZED: Mapping[Minimize, str] = {"latency": MEDIAN_LATENCY, "size": "size", "memory": "peak_memory"}
"""Objectives by the word for them on the command line."""
QUALITY = ("task", "fidelity", "custom")
"""Kinds of metrics of quality."""


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
    generates: bool = False
    """True if the source model generates text: a decoder with a cache."""
    unverified: bool = False
    """True if lossy candidates are only shown, see `Problem.unverified`."""

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


@dataclass(frozen=True)
class GoalOptions:
    """A goal that overrides a DAG's, with short forms for the command line; None keeps what the DAG or default says."""

    minimize: Minimize | None = None
    metric: str | None = None
    """The quality metric that is limited."""
    max_drop: float | None = None
    """The drop in it that is accepted."""
    objectives: tuple[Objective, ...] | None = None
    constraints: tuple[Constraint, ...] | None = None

    def apply(self, request: GoalRequest, data: DataDescription | None) -> GoalRequest:
        """Override the goal of a DAG. A limit on quality replaces all other ones.

        Raises:
            InputError: the metric is unknown or not one of quality, or there are no labels to measure a drop on.
        """
        if self.objectives is not None:
            request = replace(request, objectives=self.objectives)
        if self.constraints is not None:
            request = replace(request, constraints=self.constraints)
        if self.minimize is not None:
            if self.minimize not in MINIMIZED:
                raise InputError(f"minimize is {', '.join(MINIMIZED)}, not {self.minimize!r}")
            request = replace(request, objectives=(Objective(MINIMIZED[self.minimize], "minimize"),))
        if self.metric is None and self.max_drop is None:
            return request
        limit = self._limit(request, data)
        others = [c for c in request.constraints or () if get_metric(c.metric, request.custom).kind not in QUALITY]
        return replace(request, constraints=[limit, *others])

    def _limit(self, request: GoalRequest, data: DataDescription | None) -> Constraint:
        task_metric = _task_metric(data)
        name = self.metric or task_metric or "accuracy"
        metric = get_metric(name, request.custom)
        if metric.kind not in QUALITY:
            raise InputError(f"{name} is no metric of quality", where=option("metric"), remedy="see docs/quality.md")
        if metric.kind == "task" and task_metric is None:
            given = option("metric" if self.metric else "max_drop")
            labels, agreement = option("label", of="NAME"), option("metric", AGREEMENT)
            remedy = f"name the labels with {labels}, or limit agreement: {agreement}"
            raise InputError("needs labels in the data", where=given, remedy=remedy)
        if self.max_drop is None:
            return DEFAULT_QUALITY.get(name, Constraint(name, max_drop=0.01))
        metric.check_drop(self.max_drop, where=option("max_drop"))
        return Constraint(name, max_drop=self.max_drop)


def make_goal(request: GoalRequest, data: DataDescription | None) -> tuple[Goal, list[str]]:
    """Fill in the defaults, which depend on the labels of the evaluation data. Also return notes on the defaults."""
    default_quality = _task_metric(data) or AGREEMENT
    objectives = list(request.objectives) or [default_objective(decodes=request.generates)]
    extra, notes = list(request.extra_metrics), []
    if request.generates and not request.objectives:
        extra.append(FIRST_TOKEN)
        prompts = f"{option('minimize', 'latency')} is for prompts alone"
        notes.append(f"a decoder with a cache: maximizing tokens per second; {prompts}")
    stated = [*_names(objectives), *_names(request.constraints or ()), *extra]
    metrics = {name: get_metric(name, request.custom) for name in (*stated, *DEFAULT_METRICS)}
    defaults = _default_limits(request, metrics, default_quality, data)
    constraints = [*(request.constraints or ()), *defaults]
    notes += defaults.values()
    if not request.unverified:
        notes += _quality_notes(constraints, metrics, data)
    limited = _names(constraints)
    names = [*_names(objectives), *limited]
    quality = _first_quality((*limited, *names), metrics) or default_quality
    goal = Goal(
        objectives=tuple(objectives),
        constraints=tuple(constraints),
        metrics=_measured([*names, *extra, *BESIDE.get(default_quality, ()), "size", quality], metrics),
        front=_front(objectives, quality, metrics),
        custom=dict(request.custom),
    )
    return goal, notes


def _names(bounds: Sequence[Objective | Constraint]) -> list[str]:
    return [bound.metric for bound in bounds]


def _measured(names: Sequence[str], metrics: Mapping[str, Metric]) -> tuple[Metric, ...]:
    """The metrics of these names, each once, and times of inferences where they are measured anyway or nothing runs."""
    kinds = {metrics[name].kind for name in names}
    # No candidate is chosen that did not run, and a metric of the user need not run it.
    if "latency" in kinds or kinds.isdisjoint(("task", "fidelity")):
        names = [*names, *PER_INFERENCE]
    return tuple(metrics[name] for name in dict.fromkeys(names))


def _default_limits(
    request: GoalRequest, metrics: Mapping[str, Metric], quality: str, data: DataDescription | None
) -> dict[Constraint, str]:
    """The default constraint on a metric of quality with a note on it, unless the user limits one or turns it off.

    A second one is added where accuracy would hide a lost class. It limits the mean of the recalls: half of a class may
    be lost, but at most `RARE` times the limit on accuracy.
    """
    if request.constraints is not None:
        kinds = {metrics[constraint.metric].kind for constraint in request.constraints}
        if not kinds or not kinds.isdisjoint(QUALITY):
            return {}
    default = DEFAULT_QUALITY[quality]
    if default.max_ratio is not None:
        return {default: f"limit: {quality} at most {default.max_ratio} times your model's"}
    drop = default.max_drop
    if drop is None:
        return {default: f"limit: {quality} with your model's outputs of at least {default.min}"}
    limits = {default: f"limit: {quality} may drop by at most {drop} ({option('max_drop')})"}
    if quality == "accuracy" and data is not None and 0 < data.smallest_class < RARE * drop * data.labelled:
        most = round(min(RARE * drop, max(drop, 0.5 / data.classes)), 3)
        rare = f"the smallest class has {data.smallest_class} of {data.labelled} labels"
        note = f"limit: balanced_accuracy may drop by at most {most:g}, because {rare}"
        limits[Constraint("balanced_accuracy", max_drop=most)] = note
    return limits


def _first_quality(names: Iterable[str], metrics: Mapping[str, Metric]) -> str | None:
    """The first metric that compares outputs with labels or that the user defines, else the first of fidelity.

    Where the user names only fidelity, nothing else is measured: labels such as the names of folders may not be about
    the outputs.
    """
    found = [metrics[name] for name in names]
    for kinds in (("task", "custom"), ("fidelity",)):
        for metric in found:
            if metric.kind in kinds:
                return metric.name
    return None


def _task_metric(data: DataDescription | None) -> str | None:
    """The default task metric for the labels of the data; None without labels."""
    if data is None or not data.labels:
        return None
    return TASK_METRIC.get(str(data.label_kind), "accuracy")


def _quality_notes(
    constraints: Sequence[Constraint], metrics: Mapping[str, Metric], data: DataDescription | None
) -> Iterator[str]:
    """Say what the data cannot show about the quality of any candidate."""
    kinds = {metrics[constraint.metric].kind for constraint in constraints}
    if data is not None and data.labels:
        for constraint in constraints:
            yield from _resolution_notes(constraint, metrics[constraint.metric], data.items)
    elif "fidelity" in kinds and not kinds & {"task", "custom"}:
        origin = "no data" if data is None else "no labels"
        yield (
            f"QUALITY IS A GUESS: {origin}, so outputs are only compared with your model's. "
            "Give data with labels, or check the chosen model before you use it"
        )


def _resolution_notes(constraint: Constraint, metric: Metric, items: int) -> Iterator[str]:
    """Name a limit on the drop of a share that is too tight for so few items."""
    limit = constraint.max_drop
    if not items or not limit or constraint.confidence is not None:
        return
    if metric.kind == "task" and metric.unit == "fraction" and share_resolution(items) > limit:
        yield (
            f"{items} items are too few to be certain of a drop in {metric.name} of at most {limit}, "
            f"so the measured value decides; {items_to_resolve(limit)} would do"
        )


def _front(objectives: Sequence[Objective], quality: str, metrics: Mapping[str, Metric]) -> tuple[Objective, ...]:
    """The objectives of the Pareto front: the user's, the size and a quality."""
    front = {objective.metric: objective for objective in objectives}
    for name in ("size", quality):
        front.setdefault(name, Objective(name, metrics[name].direction))
    return tuple(front.values())
